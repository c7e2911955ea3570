#include "weft/base/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>

#include "weft/base/ring_format.h"

namespace weft {
namespace {

void copy_name(char* to, std::size_t size, std::string_view from) {
  const std::size_t n = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), n);
  to[n] = '\0';
}

std::int64_t unix_minus_monotonic_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count() -
         duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct Ring::State {
  std::byte* base = nullptr;
  std::size_t size = 0;
  std::mutex mutex;
  std::deque<RingLane> lanes;  // references stay valid

  RingFileHeader& header() { return *reinterpret_cast<RingFileHeader*>(base); }
  ~State() {
    if (base != nullptr) ::munmap(base, size);
  }
};

Ring::Ring(std::unique_ptr<State> state) : state_(std::move(state)) {}
Ring::Ring(Ring&&) noexcept = default;
Ring& Ring::operator=(Ring&&) noexcept = default;
Ring::~Ring() = default;

Result<Ring> Ring::create(const std::filesystem::path& path, const RingOptions& options) {
  if (options.lanes == 0 || options.lanes > kRingMaxLanes) {
    return fail(ErrorCode::kInvalidArgument, "ring {}: {} lanes; give 1 to {}", path.string(),
                options.lanes, kRingMaxLanes);
  }
  const std::uint64_t slots = std::bit_floor(options.bytes / options.lanes / sizeof(RingSlot));
  if (slots < 8) {
    return fail(ErrorCode::kInvalidArgument,
                "ring {}: {} bytes for {} lanes leave {} slots a lane; give at least {} bytes",
                path.string(), options.bytes, options.lanes, slots,
                8 * sizeof(RingSlot) * options.lanes);
  }
  const std::size_t size = ring_slots_at(options.lanes) + slots * options.lanes * sizeof(RingSlot);
  // A new inode: readers of an earlier ring of this name keep what they have.
  const std::string fresh = path.string() + ".new";
  const int fd = ::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fail(ErrorCode::kIo, "cannot make ring {}: {}", path.string(), std::strerror(errno));
  }
  const int allocated = ::posix_fallocate(fd, 0, static_cast<off_t>(size));
  void* base = allocated == 0
                   ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0)
                   : MAP_FAILED;
  const int error = allocated != 0 ? allocated : errno;
  ::close(fd);
  if (base == MAP_FAILED) {
    ::unlink(fresh.c_str());
    return fail(error == ENOSPC ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
                "ring {}: no room for {} bytes: {}", path.string(), size, std::strerror(error));
  }
  auto state = std::make_unique<State>();
  state->base = static_cast<std::byte*>(base);
  state->size = size;
  auto* header = new (base) RingFileHeader{};
  header->version = kRingVersion;
  header->slot_bytes = sizeof(RingSlot);
  header->lanes = options.lanes;
  header->slots_per_lane = slots;
  header->pid = ::getpid();
  header->incarnation = options.incarnation;
  header->rank = options.rank;
  header->unix_offset_ns = unix_minus_monotonic_ns();
  copy_name(header->writer, sizeof(header->writer), options.writer);
  std::memcpy(header->magic, kRingMagic, sizeof(kRingMagic));
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(fresh.c_str());
    return fail(ErrorCode::kIo, "cannot make ring {}: {}", path.string(), std::strerror(reason));
  }
  return Ring(std::move(state));
}

Result<RingLane*> Ring::claim_lane(std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  RingFileHeader& header = state_->header();
  const std::uint32_t lane = header.claimed.load(std::memory_order_relaxed);
  if (lane == header.lanes) {
    return fail(ErrorCode::kResourceExhausted,
                "ring of {}: all {} lanes are taken; make it with more lanes", header.writer,
                header.lanes);
  }
  auto* names = reinterpret_cast<RingLaneHeader*>(state_->base + kRingLaneNamesAt);
  copy_name(names[lane].name, sizeof(names[lane].name), name);
  auto* slots = reinterpret_cast<RingSlot*>(state_->base + ring_slots_at(header.lanes)) +
                lane * header.slots_per_lane;
  state_->lanes.push_back(RingLane(slots, header.slots_per_lane - 1));
  header.claimed.store(lane + 1, std::memory_order_release);
  return &state_->lanes.back();
}

std::uint64_t Ring::slots_per_lane() const { return state_->header().slots_per_lane; }

Result<std::filesystem::path> ring_path(std::string_view job, std::uint32_t rank) {
  for (const char c : job) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.';
    if (!good) {
      return fail(ErrorCode::kInvalidArgument,
                  "job name \"{}\": use letters, digits, '-', '_' and '.' only", job);
    }
  }
  if (job.empty()) return fail(ErrorCode::kInvalidArgument, "the job has no name; give one");
  const std::filesystem::path dir = fmt::format("/dev/shm/weft-{}", job);
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return fail(ErrorCode::kIo, "cannot make {}: {}", dir.string(), error.message());
  return dir / fmt::format("rank-{}.ring", rank);
}

struct RingReader::State {
  const std::byte* base = nullptr;
  std::size_t size = 0;

  const RingFileHeader& header() const { return *reinterpret_cast<const RingFileHeader*>(base); }
  ~State() {
    if (base != nullptr) ::munmap(const_cast<std::byte*>(base), size);
  }
};

RingReader::RingReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
RingReader::RingReader(RingReader&&) noexcept = default;
RingReader& RingReader::operator=(RingReader&&) noexcept = default;
RingReader::~RingReader() = default;

Result<RingReader> RingReader::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open ring {}: {}",
                path.string(), std::strerror(errno));
  }
  struct stat info{};
  void* base = MAP_FAILED;
  std::size_t size = 0;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    size = static_cast<std::size_t>(info.st_size);
    if (size >= ring_slots_at(1)) base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (base == MAP_FAILED) {
    return fail(ErrorCode::kCorrupt, "{}: {} bytes are too few for a ring", path.string(), size);
  }
  auto state = std::make_unique<State>();
  state->base = static_cast<const std::byte*>(base);
  state->size = size;
  const RingFileHeader& h = state->header();
  if (std::memcmp(h.magic, kRingMagic, sizeof(kRingMagic)) != 0) {
    return fail(ErrorCode::kCorrupt, "{}: magic: not a Weft ring", path.string());
  }
  if (h.version != kRingVersion) {
    return fail(ErrorCode::kUnsupported, "{}: version: {}; this build reads version {}",
                path.string(), h.version, kRingVersion);
  }
  if (h.slot_bytes != sizeof(RingSlot)) {
    return fail(ErrorCode::kCorrupt, "{}: slot_bytes: {}, expected {}", path.string(), h.slot_bytes,
                sizeof(RingSlot));
  }
  if (h.lanes == 0 || h.lanes > kRingMaxLanes ||
      h.claimed.load(std::memory_order_acquire) > h.lanes) {
    return fail(ErrorCode::kCorrupt, "{}: lanes: {} with {} claimed", path.string(), h.lanes,
                h.claimed.load(std::memory_order_relaxed));
  }
  const std::size_t slots_room = (size - std::min(size, ring_slots_at(h.lanes))) / sizeof(RingSlot);
  if (!std::has_single_bit(h.slots_per_lane) || h.slots_per_lane > slots_room ||
      h.slots_per_lane * h.lanes > slots_room) {
    return fail(ErrorCode::kCorrupt,
                "{}: slots_per_lane: {} in {} lanes do not fit the file's {} bytes (truncated?)",
                path.string(), h.slots_per_lane, h.lanes, size);
  }
  return RingReader(std::move(state));
}

std::string RingReader::writer() const {
  const auto& writer = state_->header().writer;
  return std::string(writer, ::strnlen(writer, sizeof(writer)));
}
std::uint32_t RingReader::rank() const { return state_->header().rank; }
std::uint64_t RingReader::incarnation() const { return state_->header().incarnation; }
std::int64_t RingReader::pid() const { return state_->header().pid; }
std::uint32_t RingReader::lanes() const {
  return state_->header().claimed.load(std::memory_order_acquire);
}
std::uint64_t RingReader::slots_per_lane() const { return state_->header().slots_per_lane; }
std::int64_t RingReader::unix_offset_ns() const { return state_->header().unix_offset_ns; }

std::string RingReader::lane_name(std::uint32_t lane) const {
  const auto* names = reinterpret_cast<const RingLaneHeader*>(state_->base + kRingLaneNamesAt);
  return std::string(names[lane].name, ::strnlen(names[lane].name, sizeof(names[lane].name)));
}

namespace {

// Copies the record if the slot holds a whole one; gives its stamp before and
// whether it stayed unchanged during the copy.
struct SlotLook {
  std::uint64_t stamp = 0;
  bool whole = false;
};
SlotLook look(const RingSlot& slot, RingRecord& record) {
  SlotLook seen;
  seen.stamp = slot.stamp.load(std::memory_order_acquire);
  if (seen.stamp == 0 || seen.stamp % 2 == 1) return seen;
  record.index = seen.stamp / 2 - 1;
  record.ns = slot.ns.load(std::memory_order_relaxed);
  record.kind = static_cast<std::uint32_t>(slot.kind.load(std::memory_order_relaxed));
  for (std::size_t i = 0; i < slot.words.size(); ++i) {
    const std::uint64_t word = slot.words[i].load(std::memory_order_relaxed);
    std::memcpy(record.payload.data() + 8 * i, &word, sizeof(word));
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  seen.whole = slot.stamp.load(std::memory_order_relaxed) == seen.stamp;
  return seen;
}

// The index after the newest whole record: the greatest even stamp of the lane.
std::uint64_t lane_end(const RingSlot* slots, std::uint64_t count) {
  // Stamps ascend from slot 0 to the newest record's slot and drop after it, so
  // the newest is found by bisection on "was written in the pass of slot 0".
  const auto pass = [&](std::uint64_t i) {
    const std::uint64_t stamp = slots[i].stamp.load(std::memory_order_acquire);
    return stamp == 0 ? 0 : (stamp - 1) / 2 / count + 1;  // 0: never written
  };
  const std::uint64_t first = pass(0);
  if (first == 0) return 0;
  std::uint64_t low = 0;       // in the pass of slot 0 or later
  std::uint64_t high = count;  // before it
  while (high - low > 1) {
    const std::uint64_t middle = (low + high) / 2;
    (pass(middle) >= first ? low : high) = middle;
  }
  const std::uint64_t stamp = slots[low].stamp.load(std::memory_order_acquire);
  return stamp % 2 == 1 ? (stamp - 1) / 2 : stamp / 2;
}

}  // namespace

Result<RingRead> RingReader::read(std::uint32_t lane, std::uint64_t from) const {
  if (lane >= lanes()) {
    return fail(ErrorCode::kOutOfRange, "ring of {}: lane {} of {}", writer(), lane, lanes());
  }
  const std::uint64_t count = slots_per_lane();
  const auto* slots =
      reinterpret_cast<const RingSlot*>(state_->base + ring_slots_at(state_->header().lanes)) +
      lane * count;
  RingRead result;
  const std::uint64_t end = lane_end(slots, count);
  const std::uint64_t oldest = end > count ? end - count : 0;
  result.next = from;
  if (from < oldest) {
    result.lost = oldest - from;
    result.next = oldest;
  }
  result.records.reserve(end > result.next ? end - result.next : 0);
  // At most one pass: what the writer adds meanwhile is for the next read.
  for (std::uint64_t i = result.next; i < end; ++i) {
    RingRecord record;
    const SlotLook seen = look(slots[i & (count - 1)], record);
    if (seen.whole && record.index == i) {
      result.records.push_back(record);
    } else {
      ++result.lost;  // overwritten since `end` was taken
    }
    result.next = i + 1;
  }
  // Whether the writer is, or died, inside the record after the last.
  result.torn = slots[end & (count - 1)].stamp.load(std::memory_order_acquire) == 2 * end + 1;
  return result;
}

}  // namespace weft

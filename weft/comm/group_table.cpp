#include "weft/comm/group_table.h"

#include <algorithm>
#include <set>

#include "weft/comm/transport.h"

namespace weft::comm {
namespace {

std::string list_of(std::span<const MemberId> members) {
  return fmt::format("{}", fmt::join(members, " "));
}

}  // namespace

Result<Communicator*> GroupTable::find(std::uint64_t group) {
  const auto found = groups_.find(group);
  if (found == groups_.end()) {
    return fail(ErrorCode::kNotFound, "member {} has no group {}", self_, group);
  }
  return found->second.get();
}

Result<Communicator*> GroupTable::create(std::uint64_t group, std::span<const MemberId> members,
                                         Deadline deadline) {
  if (groups_.contains(group)) {
    return fail(ErrorCode::kInvalidArgument, "group {} exists; edit it with prepare and commit",
                group);
  }
  WEFT_ASSIGN(const Prepared prepared, prepare(group, 0, members));
  return commit(prepared, deadline);
}

Result<Prepared> GroupTable::prepare(std::uint64_t group, std::uint32_t from,
                                     std::span<const MemberId> next) {
  const auto present = groups_.find(group);
  if (present != groups_.end() && present->second->view().epoch != from) {
    return fail(ErrorCode::kUnavailable, "group {}: epoch {} is not the one here, which is {}",
                group, from, present->second->view().epoch);
  }
  const std::set<MemberId> distinct(next.begin(), next.end());
  if (next.empty() || distinct.size() != next.size()) {
    return fail(ErrorCode::kInvalidArgument, "group {}: \"{}\" is empty or names a member twice",
                group, list_of(next));
  }
  const std::string key = fmt::format("group/{}/{}", group, from + 1);
  WEFT_ASSIGN(const std::string first, rendezvous_.put_if_absent(key, list_of(next)));
  if (first != list_of(next)) {
    return fail(ErrorCode::kInvalidArgument,
                "group {} epoch {}: the members proposed first are \"{}\", not \"{}\"", group,
                from + 1, first, list_of(next));
  }
  Prepared prepared;
  prepared.next.id = group;
  prepared.next.epoch = from + 1;
  prepared.next.members.assign(next.begin(), next.end());
  return prepared;
}

Result<Communicator*> GroupTable::commit(const Prepared& prepared, Deadline deadline) {
  WEFT_ASSIGN(auto opened,
              Communicator::open(prepared.next, self_, rendezvous_, options_, deadline));
  if (options_.transport != nullptr) {
    options_.transport->set_epoch(prepared.next.id, prepared.next.epoch);
  }
  auto& place = groups_[prepared.next.id];
  place = std::move(opened);
  return place.get();
}

Result<Communicator*> GroupTable::split(std::uint64_t group, std::uint32_t colour,
                                        Deadline deadline) {
  if (colour >= 1000) return fail(ErrorCode::kOutOfRange, "split: colour {} of 1,000", colour);
  WEFT_ASSIGN(Communicator* const whole, find(group));
  std::vector<std::uint32_t> colours(whole->size());
  const std::vector<std::uint64_t> one(whole->size(), 1);
  WEFT_TRY(whole->all_gather(&colour, colours.data(), one, DType::kI32, deadline));
  std::vector<MemberId> members;
  for (std::uint32_t r = 0; r < whole->size(); ++r) {
    if (colours[r] == colour) members.push_back(whole->view().members[r]);
  }
  return create(group + 1 + colour, members, deadline);
}

void GroupTable::drop(std::uint64_t group) { groups_.erase(group); }

GroupMap GroupTable::view() const {
  GroupMap map;
  for (const auto& [id, communicator] : groups_) map[id] = communicator->view();
  return map;
}

}  // namespace weft::comm

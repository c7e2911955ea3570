#include "weft/serve/constrain/constraint.h"

#include <algorithm>
#include <bit>

namespace weft::serve::constrain {

namespace {

// Nodes of the trie that making a constraint may look at for its masks: about 50 ns
// each while the automaton is still growing, so half a second.
constexpr std::int64_t kMaskBudget = 10'000'000;
constexpr std::size_t kForgetConfigs = 2'000;  // 1 KB each
constexpr std::size_t kCachedMasks = 32;       // of one reply

void set(std::vector<std::uint64_t>& bits, model::TokenId id) {
  const auto at = static_cast<std::size_t>(id);
  bits[at / 64] |= std::uint64_t{1} << (at % 64);
}
bool is_set(const std::vector<std::uint64_t>& bits, model::TokenId id) {
  const auto at = static_cast<std::size_t>(id);
  return ((bits[at / 64] >> (at % 64)) & 1U) != 0;
}

// Calls `visit(node, config)` for the nodes below `root` that can be read from
// `config`, as long as it says to go deeper. Returns the number of nodes looked at.
template <class Visit>
std::int64_t walk(const TokenTrie& trie, std::int32_t root, Parses& parses, Parses::Config config,
                  std::vector<Parses::Config>& path, Visit visit) {
  const auto nodes = trie.nodes();
  const auto& top = nodes[static_cast<std::size_t>(root)];
  path.resize(static_cast<std::size_t>(trie.longest()) + 1);
  path[top.depth] = config;
  std::int64_t looked = 0;
  for (std::int32_t i = root + 1; i < top.end;) {
    const auto& node = nodes[static_cast<std::size_t>(i)];
    const Parses::Config to =
        parses.step(path[static_cast<std::size_t>(node.depth) - 1], node.byte);
    ++looked;
    if (to == Parses::kDead || !visit(i, to)) {
      i = node.end;
      continue;
    }
    path[node.depth] = to;
    ++i;
  }
  return looked;
}

}  // namespace

Constraint::Constraint(Machine machine, std::shared_ptr<const TokenTrie> trie)
    : machine_(std::move(machine)), trie_(std::move(trie)) {
  group_ = groups_of(machine_.states, trie_->longest());
  std::int32_t groups = 0;
  for (const std::int32_t g : group_) groups = std::max(groups, g + 1);
  masks_ = std::vector<std::atomic<const StateMask*>>(static_cast<std::size_t>(groups));
}

Constraint::~Constraint() {
  for (auto& mask : masks_) delete mask.load();
}

Result<std::shared_ptr<const Constraint>> Constraint::make(const Grammar& grammar,
                                                           std::shared_ptr<const TokenTrie> trie) {
  WEFT_ASSIGN(Machine machine, compile(grammar, trie->alphabet()));
  std::shared_ptr<Constraint> out(new Constraint(std::move(machine), std::move(trie)));
  Parses parses(out->machine_);
  std::int64_t visits = 0;
  for (std::size_t s = 0; s < out->machine_.states.size() && visits < kMaskBudget; ++s) {
    auto& slot = out->masks_[static_cast<std::size_t>(out->group_[s])];
    if (slot.load() != nullptr || out->machine_.states[s].edges.empty()) continue;
    slot = out->make_mask(static_cast<std::int32_t>(s), parses, visits).release();
  }
  // A reply that could not even begin is refused here rather than while it runs.
  ConstraintState first(out);
  if (const auto allowed = first.allowed(); !allowed) return std::unexpected(allowed.error());
  return out;
}

std::unique_ptr<StateMask> Constraint::make_mask(std::int32_t state, Parses& parses,
                                                 std::int64_t& visits) const {
  auto out = std::make_unique<StateMask>();
  out->bits.assign(trie_->words(), 0);
  if (parses.configs() > kForgetConfigs || parses.overflow()) parses.clear();
  parses.allow_work();
  const auto nodes = trie_->nodes();
  std::vector<Parses::Config> path;
  std::int64_t count = 0;
  // Only the bytes of this state itself: what it calls has states and masks of its own.
  const Automaton::State& from = machine_.states[static_cast<std::size_t>(state)];
  std::array<Parses::Config, 256> first{};
  first.fill(Parses::kDead);
  for (const Edge& e : from.edges) {
    const Parses::Config to = parses.begin(e.to);
    for (int b = e.first; b <= e.last; ++b) first[static_cast<std::size_t>(b)] = to;
  }
  const auto take = [&](std::int32_t i, Parses::Config config) {
    for (const auto id : trie_->tokens(nodes[static_cast<std::size_t>(i)])) {
      set(out->bits, id);
      ++count;
    }
    if (parses.accepting(config) && nodes[static_cast<std::size_t>(i)].end > i + 1) {
      out->escapes.push_back(i);
    }
    return parses.can_go_on(config);
  };
  for (std::int32_t i = 1; i < nodes[0].end; i = nodes[static_cast<std::size_t>(i)].end) {
    const Parses::Config to = first[nodes[static_cast<std::size_t>(i)].byte];
    ++visits;
    if (to != Parses::kDead && take(i, to)) visits += walk(*trie_, i, parses, to, path, take);
  }
  visits += parses.work();
  // Where every token below is allowed already, the caller need not be asked.
  std::erase_if(out->escapes, [&](std::int32_t i) {
    const auto& node = nodes[static_cast<std::size_t>(i)];
    for (std::int32_t below = i + 1; below < node.end; ++below) {
      for (const auto id : trie_->tokens(nodes[static_cast<std::size_t>(below)])) {
        if (!is_set(out->bits, id)) return false;
      }
    }
    return true;
  });
  if (count <= static_cast<std::int64_t>(trie_->words())) {
    for (std::size_t w = 0; w < out->bits.size(); ++w) {
      for (std::uint64_t word = out->bits[w]; word != 0; word &= word - 1) {
        out->listed.push_back(
            static_cast<model::TokenId>(w * 64 + static_cast<std::size_t>(std::countr_zero(word))));
      }
    }
    out->bits = {};
  }
  return out;
}

const StateMask& Constraint::mask_of(std::int32_t state) const {
  auto& slot = masks_[static_cast<std::size_t>(group_[static_cast<std::size_t>(state)])];
  const StateMask* known = slot.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  Parses parses(machine_);
  std::int64_t visits = 0;
  auto made = make_mask(state, parses, visits);
  // Another thread may have been faster; both masks are equal.
  if (slot.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
    return *made.release();
  }
  return *known;
}

std::int64_t Constraint::masks_made() const {
  return std::ranges::count_if(masks_, [](const auto& mask) { return mask.load() != nullptr; });
}

ConstraintState::ConstraintState(std::shared_ptr<const Constraint> constraint)
    : constraint_(std::move(constraint)),
      parses_(constraint_->machine()),
      at_(parses_.begin(constraint_->machine().root)),
      cache_(kCachedMasks) {}

void ConstraintState::add_below(std::int32_t node, Parses::Config config,
                                std::vector<std::uint64_t>& bits) {
  const TokenTrie& trie = constraint_->trie();
  const auto nodes = trie.nodes();
  walk(trie, node, parses_, config, path_, [&](std::int32_t i, Parses::Config) {
    for (const auto id : trie.tokens(nodes[static_cast<std::size_t>(i)])) set(bits, id);
    return true;
  });
}

void ConstraintState::add_state(const Parses::Item& item, std::vector<std::uint64_t>& bits) {
  const StateMask& mask = constraint_->mask_of(item.state);
  for (std::size_t w = 0; w < mask.bits.size(); ++w) bits[w] |= mask.bits[w];
  for (const model::TokenId id : mask.listed) set(bits, id);
  if (mask.escapes.empty() || item.stack == 0) return;
  const Parses::Config caller = parses_.after_pop(item);
  if (caller == Parses::kDead) return;
  for (const std::int32_t node : mask.escapes) add_below(node, caller, bits);
}

Result<std::span<const std::uint64_t>> ConstraintState::allowed() {
  const TokenTrie& trie = constraint_->trie();
  if (at_ != Parses::kDead && parses_.configs() > kForgetConfigs) {
    at_ = parses_.clear(at_);
    for (CachedMask& cached : cache_) cached.config = Parses::kDead;
  }
  const auto too_many = [] {
    return fail(ErrorCode::kResourceExhausted,
                "the grammar reads the reply so far in too many ways at once; make it less "
                "ambiguous");
  };
  if (at_ == Parses::kDead) return too_many();
  CachedMask& cached = cache_[static_cast<std::size_t>(at_) % kCachedMasks];
  if (cached.config == at_) return std::span<const std::uint64_t>(cached.bits);
  cached.config = Parses::kDead;
  cached.bits.assign(trie.words(), 0);
  parses_.allow_work();
  // A copy: the list moves when configurations are added.
  const std::vector<Parses::Item> items(parses_.items(at_).begin(), parses_.items(at_).end());
  for (const Parses::Item& item : items) add_state(item, cached.bits);
  if (parses_.overflow()) return too_many();
  if (parses_.accepting(at_)) {
    for (const auto id : trie.eos()) {
      if (id >= 0 && id < trie.vocab_size()) set(cached.bits, id);
    }
  }
  if (!complete() && std::ranges::all_of(cached.bits, [](auto word) { return word == 0; })) {
    return fail(ErrorCode::kInvalidArgument,
                "no token of this vocabulary can go on with what the grammar asks for here");
  }
  cached.config = at_;
  return std::span<const std::uint64_t>(cached.bits);
}

bool ConstraintState::accept(model::TokenId token) {
  if (constraint_->trie().is_eos(token)) {
    if (!accepting()) return false;
    ended_ = true;
    return true;
  }
  const std::string_view bytes = constraint_->trie().bytes(token);
  return !bytes.empty() && accept_bytes(bytes);
}

bool ConstraintState::accept_bytes(std::string_view bytes) {
  if (at_ == Parses::kDead || ended_) return false;
  parses_.allow_work();
  Parses::Config to = at_;
  for (const char c : bytes) {
    to = parses_.step(to, static_cast<std::uint8_t>(c));
    if (to == Parses::kDead) return false;
  }
  at_ = to;
  return true;
}

bool ConstraintState::accepting() const {
  return ended_ || (at_ != Parses::kDead && parses_.accepting(at_));
}
bool ConstraintState::complete() const {
  return ended_ || (at_ != Parses::kDead && parses_.accepting(at_) && !parses_.can_go_on(at_));
}

}  // namespace weft::serve::constrain

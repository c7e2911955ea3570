// GroupTable: the groups that one member belongs to, each with its epoch and
// communicator.
//
// A change of members is made in two steps. `prepare` writes the next epoch's
// members at the rendezvous: the first proposal counts, another one is refused.
// `commit` opens the next epoch together with all its members and then fences
// the old one, so that messages of it are refused. A commit that fails leaves the
// old epoch working over shared memory; over the network it ends both. Endpoints
// of the transport stay open across epochs: only those to members never met before
// are opened.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/deadline.h"
#include "weft/base/result.h"
#include "weft/comm/communicator.h"

namespace weft::comm {

// Which groups there are and who is in them, by id.
using GroupMap = std::map<std::uint64_t, GroupView>;

// A proposal that was accepted.
struct Prepared {
  GroupView next;
};

// One thread at a time. What `options` points to must outlive the table.
class GroupTable {
 public:
  GroupTable(MemberId self, Rendezvous& rendezvous, CommunicatorOptions options)
      : self_(self), rendezvous_(rendezvous), options_(std::move(options)) {}

  // Makes a group; all members call it with equal arguments. The reference
  // stays valid until the group is committed to another epoch or dropped.
  Result<Communicator*> create(std::uint64_t group, std::span<const MemberId> members,
                               Deadline deadline);
  // Proposes the members of the epoch after `from`; every member of the next
  // epoch calls it, those that join too. kInvalidArgument when another list was
  // proposed, when it is empty or names a member twice; kUnavailable when
  // `from` is not the epoch here.
  Result<Prepared> prepare(std::uint64_t group, std::uint32_t from, std::span<const MemberId> next);
  // Opens the prepared epoch with all its members, then fences the old one.
  Result<Communicator*> commit(const Prepared& prepared, Deadline deadline);
  // Splits the members of a group by `colour` into new groups group + 1 +
  // colour, in the old order; all members of `group` call it. Colours are below
  // 1,000.
  Result<Communicator*> split(std::uint64_t group, std::uint32_t colour, Deadline deadline);
  // Leaves a group; what runs in its epoch here ends.
  void drop(std::uint64_t group);

  Result<Communicator*> find(std::uint64_t group);
  GroupMap view() const;

 private:
  MemberId self_;
  Rendezvous& rendezvous_;
  CommunicatorOptions options_;
  std::map<std::uint64_t, std::unique_ptr<Communicator>> groups_;
};

}  // namespace weft::comm

// Decision<A>: what a policy answers. Policies are pure: equal views give decisions that
// are equal to the byte.
#pragma once

#include <string>
#include <vector>

namespace weft {

// An alternative that was looked at and not taken.
struct Rejected {
  std::string what;
  std::string why;
  double cost = 0;  // in the decision's own unit
};

template <class Action>
struct Decision {
  Action chosen = {};
  std::vector<Rejected> rejected = {};
  double predicted_cost = 0;
  std::string reason = {};
};

}  // namespace weft

// Every published topology file reads to the right counts; damaged ones are refused with
// the place of the damage; drawings and the own forms carry everything.
#include "weft/cluster/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>

#include "tests/support/data.h"
#include "weft/base/file.h"
#include "weft/base/rng.h"
#include "weft/cluster/host_list.h"
#include "weft/cluster/show.h"
#include "weft/cluster/topology_reader.h"

namespace weft::cluster {
namespace {

using testing::HasSubstr;

struct Expected {
  const char* path;
  const char* format;
  std::size_t nodes, gpus, nics, links;
};
// Counts by grep over the files themselves.
constexpr Expected kFiles[] = {
    {"topologies/nccl/p4d-24xl-topo.xml", "nccl", 1, 8, 4, 0},
    {"topologies/nccl/p4de-24xl-topo.xml", "nccl", 1, 8, 4, 0},
    {"topologies/nccl/ndv4-topo.xml", "nccl", 1, 8, 8, 0},
    {"topologies/nccl/ncv4-topo.xml", "nccl", 1, 4, 1, 0},
    {"topologies/nccl/ncv4-graph.xml", "nccl-graph", 1, 4, 0, 6},
    {"topologies/hwloc/xml/nvidiaDGX2.xml", "hwloc", 1, 16, 0, 0},
    {"topologies/hwloc/xml/power8gpudistances.xml", "hwloc", 1, 4, 0, 6},
    {"topologies/hwloc/xml/16em64t-4s2c2t.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/hwloc/xml/64intel64-heteromem.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/hwloc/xml/96em64t-4n4d3ca2co-pci.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/hwloc/xml/fakeheterodistances.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/hwloc/xml/irregulargroups-disallowed.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/hwloc/linux/fakepcilocalities.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/hwloc/x86/AMD-17h-Zen-2xEpyc-7451.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/hwloc/x86/Intel-SapphireRapids-2xXeonMax9460.xml", "hwloc", 1, 0, 0, 0},
    {"topologies/mooncake/cluster-topology.json", "mooncake-links", 2, 0, 16, 64},
    {"cluster-traces/lingjun/topo.csv", "lingjun", 847, 847 * 8, 0, 0},
    {"cluster-traces/openb/openb_node_list_all_node.csv", "openb", 1523, 6212, 0, 0},
    {"cluster-traces/openb/openb_node_list_gpu_node.csv", "openb", 1213, 6212, 0, 0},
    {"cluster-traces/philly/cluster_machine_list", "philly", 552, 321 * 2 + 231 * 8, 0, 0},
    {"cluster-traces/tiresias/n256g8.csv", "tiresias-cluster", 256, 2048, 0, 0},
    {"cluster-traces/tiresias/cluster_spec.csv", "tiresias-cluster", 16, 64, 0, 0},
};

class PublishedFile : public testing::TestWithParam<Expected> {};

TEST_P(PublishedFile, HasTheCountsOfItsText) {
  const Expected& expected = GetParam();
  WEFT_NEED_DATA(path, expected.path);
  const auto topology = read_topology(path);
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_EQ(topology->format, expected.format);
  EXPECT_EQ(topology->of_kind(PartKind::kNode).size(), expected.nodes);
  const bool graphics_only = std::string_view(expected.format) == "hwloc" && expected.gpus == 0;
  if (!graphics_only) {
    EXPECT_EQ(topology->of_kind(PartKind::kGpu).size(), expected.gpus);
    EXPECT_EQ(topology->of_kind(PartKind::kNic).size(), expected.nics);
  }
  if (expected.links > 0) {
    EXPECT_EQ(topology->links.size(), expected.links);
  }
}

TEST_P(PublishedFile, SurvivesWeftsOwnJson) {
  WEFT_NEED_DATA(path, GetParam().path);
  const auto topology = read_topology(path);
  ASSERT_TRUE(topology) << topology.error().message;
  const std::string json = dump_json(to_json(*topology));
  const auto again = parse_topology(json, "again.json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(dump_json(to_json(*again)), json);
}

// 200 damaged copies of each file: cut short, a character changed, a line lost or doubled.
// Each is either refused with its place or still whole by every check; never a crash.
TEST_P(PublishedFile, DamageIsRefusedWithALineOrHarmless) {
  WEFT_NEED_DATA(path, GetParam().path);
  const auto text = read_file(path);
  ASSERT_TRUE(text);
  const std::regex place("^[^\n]*:[0-9]+:");
  int refused = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, RngUse::kTest);
    std::string damaged = *text;
    const auto at = rng.next_below(static_cast<std::uint32_t>(damaged.size()));
    switch (seed % 4) {
      case 0:
        damaged.resize(at);
        break;
      case 1:
        damaged[at] = static_cast<char>(rng.next_below(256));
        break;
      case 2:
        damaged.erase(at, 1 + rng.next_below(40));
        break;
      default: {
        const auto begin = damaged.rfind('\n', at) + 1;
        damaged.insert(begin, damaged.substr(begin, damaged.find('\n', begin) - begin + 1));
      }
    }
    const auto topology = parse_topology(damaged, "damaged", GetParam().format);
    if (topology) {
      EXPECT_TRUE(check(*topology));
      continue;
    }
    ++refused;
    EXPECT_TRUE(std::regex_search(topology.error().message, place)) << topology.error().message;
  }
  EXPECT_GE(refused, 20) << "damage that every check lets pass is suspicious";
}

INSTANTIATE_TEST_SUITE_P(All, PublishedFile, testing::ValuesIn(kFiles), [](const auto& info) {
  std::string name = std::filesystem::path(info.param.path).filename().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
      '_');
  return name;
});

// 200 mistakes that a person or a script makes, ten kinds at twenty places: all are errors
// of the right line.
TEST(Topology, EachOfTwoHundredMistakesIsNamedWithItsLine) {
  std::vector<std::string> good = {"sn,cpu_milli,memory_mib,gpu,model"};
  for (int i = 0; i < 400; ++i) good.push_back(fmt::format("node-{},96000,786432,8,V100", i));
  const std::vector<std::pair<std::string, const char*>> mistakes = {
      {"node-X,96000,786432,8", "cells"},
      {"node-X,96000,786432,8,V100,extra", "cells"},
      {"node-X,many,786432,8,V100", "cpu_milli"},
      {"node-X,-1,786432,8,V100", "cpu_milli"},
      {"node-X,96000,7864.5,8,V100", "memory_mib"},
      {"node-X,96000,786432,65,V100", "gpu"},
      {"node-X,96000,786432,0,V100", "GPUs of model"},
      {"node-X,96000,786432,8,", "GPUs of model"},
      {",96000,786432,8,V100", "without a name"},
      {"node-0,96000,786432,8,V100", "twice"},
  };
  Rng rng(7, RngUse::kTest);
  for (int place = 0; place < 20; ++place) {
    for (const auto& [row, sentence] : mistakes) {
      auto lines = good;
      const std::size_t at = 2 + rng.next_below(398);
      lines[at] = row;
      const auto topology = parse_topology(fmt::format("{}", fmt::join(lines, "\n")), "nodes.csv");
      ASSERT_FALSE(topology) << row;
      EXPECT_EQ(topology.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(topology.error().message, HasSubstr(fmt::format("nodes.csv:{}: ", at + 1)));
      EXPECT_THAT(topology.error().message, HasSubstr(sentence));
    }
  }
}

TEST(Topology, NvlinksOfTheDgx2LeadFromEachGpuToSixSwitches) {
  WEFT_NEED_DATA(path, "topologies/hwloc/xml/nvidiaDGX2.xml");
  const auto topology = read_topology(path);
  ASSERT_TRUE(topology) << topology.error().message;
  std::vector<int> of_gpu(topology->parts.size());
  for (const Link& link : topology->links) {
    EXPECT_EQ(link.kind, LinkKind::kNvlink);
    EXPECT_DOUBLE_EQ(link.bytes_per_s, 25e9);
    ++of_gpu[static_cast<std::size_t>(link.a)];
  }
  for (const PartId gpu : topology->of_kind(PartKind::kGpu)) {
    EXPECT_EQ(of_gpu[static_cast<std::size_t>(gpu)], 6);
    EXPECT_THAT(topology->parts[static_cast<std::size_t>(gpu)].model, HasSubstr("V100"));
  }
}

TEST(Topology, LingjunHasThePublishedPodsAndRacks) {
  WEFT_NEED_DATA(path, "cluster-traces/lingjun/topo.csv");
  const auto topology = read_topology(path);
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_EQ(topology->of_kind(PartKind::kPod).size(), 3u);
  EXPECT_EQ(topology->of_kind(PartKind::kSwitch).size(), 119u);
  const auto gpus = topology->gpus_below();
  EXPECT_EQ(gpus[static_cast<std::size_t>(*topology->find(PartKind::kPod, "P10"))], 362 * 8);
}

TEST(SlurmTopology, ReadsATreeInAnyOrderOfLines) {
  const auto topology = parse_topology(
      "# two leaves\nSwitchName=leaf1 Nodes=dev[4-7]\nSwitchName=leaf0 Nodes=dev[0-3] "
      "LinkSpeed=100\n"
      "SwitchName=top Switches=leaf[0-1]\n",
      "topology.conf");
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_EQ(topology->of_kind(PartKind::kNode).size(), 8u);
  EXPECT_EQ(topology->path(*topology->find(PartKind::kNode, "dev5")),
            "switch top / switch leaf1 / node dev5");
}

TEST(SlurmTopology, NamesTheLineOfEachMistake) {
  for (const auto& [text, message] : std::vector<std::pair<const char*, const char*>>{
           {"SwitchName=a Nodes=x\nSwitchName=a Nodes=y\n", "t:2: switch a is described twice"},
           {"SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "cycle"},
           {"SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n2\n", "t:2: node n2 is already below"},
           {"SwitchName=r Switches=a\nSwitchName=s Switches=a\nSwitchName=a Nodes=n\n",
            "t:2: switch a has two parents, r and s"},
           {"SwitchName=a Switches=gone\n", "t:1: switch gone has no line"},
           {"SwitchName=a Nodes=n[3-1]\n", "t:1: Nodes: \"n[3-1]\": expected a number or a rising"},
           {"SwitchName=a Nodes=n[0-99999999]\n", "t:1: Nodes: the list has more than"},
           {"SwitchName=a Colour=red\n", "t:1: unknown key Colour"},
           {"SwitchName=a\n", "t:1: switch a needs either"}}) {
    const auto topology = parse_topology(text, "t", "slurm");
    ASSERT_FALSE(topology) << text;
    EXPECT_THAT(topology.error().message, HasSubstr(message));
  }
}

TEST(WeftToml, DescribesNodesInRanges) {
  const auto topology = parse_topology(R"(
name = "lab"
[[pod]]
name = "p0"
[[switch]]
name = "leaf[0-1]"
parent = "p0"
up_gbit = 400
[[node]]
name = "a[0-3]"
parent = "leaf0"
cpus = 16
gpus = 4
gpu_model = "T4"
[[node]]
name = "b"
parent = "leaf1"
health = "down"
[[link]]
a = "leaf0"
b = "leaf1"
gbit = 100
latency_us = 2
)",
                                       "lab.toml");
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_EQ(topology->of_kind(PartKind::kGpu).size(), 16u);
  EXPECT_EQ(topology->links.at(0).bytes_per_s, 12.5e9);
  EXPECT_THAT(topology_text(*topology), HasSubstr("4 nodes a0 .. a3, 16 CPUs, each"));
  const auto misspelt = parse_topology("[[node]]\nname = \"a\"\n\ncpu = 3\n", "lab.toml");
  ASSERT_FALSE(misspelt);
  EXPECT_THAT(misspelt.error().message, HasSubstr("lab.toml:4: unknown key cpu"));
}

TEST(HostList, ExpandsAsSlurmDoes) {
  const auto names = expand_host_list("dev[0-2,7],tux[08-10],x");
  ASSERT_TRUE(names);
  EXPECT_THAT(*names,
              testing::ElementsAre("dev0", "dev1", "dev2", "dev7", "tux08", "tux09", "tux10", "x"));
}

TEST(TopologySvg, ShowsEveryNodeAtEightAndAtEightHundred) {
  for (const int nodes : {8, 800}) {
    const Topology topology = uniform_cluster(nodes, 8, 16, "H100");
    const std::string svg = topology_svg(topology);
    for (const int n : {0, nodes / 2, nodes - 1}) {
      EXPECT_THAT(svg, HasSubstr(fmt::format("node node{}: 8 GPUs", n)));
    }
    const std::regex size("width=\"([0-9]+)\" height=\"([0-9]+)\"");
    std::smatch match;
    ASSERT_TRUE(std::regex_search(svg, match, size));
    EXPECT_LE(std::stoi(match[1]), 1700);  // a page wide
    EXPECT_LE(std::stoi(match[2]), 1700);
  }
}

}  // namespace
}  // namespace weft::cluster

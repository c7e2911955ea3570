// How the columns of each job trace map to a Job. Only for job_reader.cpp.
#pragma once

#include <span>
#include <string_view>

namespace weft::workload {

enum class JobField : unsigned char {
  kName,
  kSubmit,  // seconds, or a date
  kStart,
  kEnd,
  kRun,  // seconds
  kSteps,
  kGpus,
  kGpuMilli,
  kCpus,  // whole CPUs
  kCpuMilli,
  kMemoryMib,
  kVc,
  kUser,
  kModel,
  kState,
  kGuaranteed,
};

struct JobColumn {
  JobField field;
  std::string_view name;
  bool needed = true;
};

// A CSV format is what its header holds.
struct JobCsvFormat {
  std::string_view name;
  std::span<const JobColumn> columns;
  bool named_twice = false;  // names may repeat (several attempts or phases)
};
std::span<const JobCsvFormat> job_csv_formats();

}  // namespace weft::workload

# Outside libraries. Debian packages are found as usual; libtorch is the wheel
# that deps/install.sh unpacked into the per-user cache.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)
pkg_check_modules(simdjson REQUIRED IMPORTED_TARGET simdjson)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(archive REQUIRED IMPORTED_TARGET libarchive)
pkg_check_modules(ucx REQUIRED IMPORTED_TARGET ucx)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)

# fmt comes as Debian's library (header-only use doubles the compile time of every
# file), except beside libtorch, which ships another fmt: there it is header-only,
# which keeps the two apart (their inline namespaces differ).
find_package(fmt REQUIRED)
add_library(weft_format INTERFACE)
target_compile_definitions(weft_format INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(weft_format INTERFACE fmt::fmt)

# libtorch (CPU part). Its headers are heavy: only targets that ask for
# weft_torch see them.
if(DEFINED ENV{WEFT_CACHE})
  set(_weft_cache $ENV{WEFT_CACHE})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(_weft_cache $ENV{XDG_CACHE_HOME}/weft)
else()
  set(_weft_cache $ENV{HOME}/.cache/weft)
endif()
set(WEFT_TORCH_DIR "${_weft_cache}/deps/torch" CACHE PATH "folder of the unpacked torch wheel")
if(NOT WEFT_FUZZ)
  if(NOT EXISTS ${WEFT_TORCH_DIR}/torch/lib/libtorch_cpu.so)
    message(FATAL_ERROR "libtorch is not in ${WEFT_TORCH_DIR}; run `make deps` first")
  endif()
  file(GLOB _cuda_libs ${WEFT_TORCH_DIR}/nvidia/*/lib)
  # The real path: the rpath must not follow a link that a later list moves.
  file(REAL_PATH ${WEFT_TORCH_DIR} _torch_real)
  add_library(weft_torch INTERFACE)
  target_compile_definitions(weft_torch INTERFACE FMT_HEADER_ONLY)
  target_include_directories(weft_torch SYSTEM INTERFACE
    ${_torch_real}/torch/include ${_torch_real}/torch/include/torch/csrc/api/include)
  target_link_libraries(weft_torch INTERFACE
    ${_torch_real}/torch/lib/libtorch_cpu.so ${_torch_real}/torch/lib/libc10.so)
  file(GLOB _cuda_libs ${_torch_real}/nvidia/*/lib)
  list(APPEND CMAKE_BUILD_RPATH ${_torch_real}/torch/lib ${_cuda_libs})
  list(APPEND CMAKE_INSTALL_RPATH ${_torch_real}/torch/lib ${_cuda_libs})
  foreach(dir ${_cuda_libs})
    target_link_options(weft_torch INTERFACE -Wl,-rpath-link,${dir})
  endforeach()
endif()

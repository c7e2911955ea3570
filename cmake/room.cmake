# weft_room(NAME [DEPS target...]): the static library of one room, made of all
# its .cpp files (sub-folders with a CMakeLists.txt of their own excepted).
# weft_test(NAME DEPS target...): one GoogleTest program from tests/NAME/*.cpp.

add_library(weft_options INTERFACE)
target_include_directories(weft_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(weft_options INTERFACE
  -Wall -Wextra -Werror
  # Results must not depend on what the compiler chose to fuse.
  -ffp-contract=off -fno-fast-math)
target_link_libraries(weft_options INTERFACE weft_format Threads::Threads)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of these two inside libstdc++ at -O2.
  target_compile_options(weft_options INTERFACE -Wno-maybe-uninitialized -Wno-uninitialized -Wno-restrict
    -Wno-stringop-overflow -Wno-array-bounds -Wno-dangling-pointer)
else()
  # Clang sees through libstdc++ 12's stable_sort to a function deprecated since.
  target_compile_options(weft_options INTERFACE -Wno-deprecated-declarations)
endif()
if(WEFT_SANITIZE MATCHES thread AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The rings' fences order atomics, which the sanitizer sees; it does not follow fences.
  target_compile_options(weft_options INTERFACE -Wno-tsan)
endif()
if(WEFT_SANITIZE)
  target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
find_program(WEFT_MOLD mold)
if(WEFT_MOLD)
  target_link_options(weft_options INTERFACE -fuse-ld=mold)
endif()

function(weft_room name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  if(NOT sources)  # all in sub-folders, or not begun yet: still a name to link to
    file(CONFIGURE OUTPUT empty.cpp CONTENT "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cpp)
  endif()
  add_library(weft_${name} STATIC ${sources})
  target_link_libraries(weft_${name} PUBLIC weft_options ${arg_DEPS})
endfunction()

function(weft_test name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE ${arg_DEPS} weft_test_support GTest::gmock)
  gtest_discover_tests(${name}_test TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    PROPERTIES TIMEOUT 300 SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
endfunction()

# weir_flags: how every object is compiled.
get_filename_component(WEIR_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
# Floating-point contraction is decided in source (explicit fma), never by the compiler: answers must not depend on flags.
add_library(weir_flags INTERFACE)
target_compile_definitions(weir_flags INTERFACE _GNU_SOURCE _FILE_OFFSET_BITS=64)
target_compile_options(weir_flags INTERFACE
  -std=c17 -ffp-contract=off -fno-math-errno -fno-common -fvisibility=hidden
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wundef -Wwrite-strings
  "-ffile-prefix-map=${WEIR_ROOT}/=")
target_include_directories(weir_flags INTERFACE ${WEIR_ROOT}/src ${WEIR_ROOT}/include)

# What `weir version` tells about the build. Only command_version.c is compiled again when one of these changes.
set(WEIR_COMMIT "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --short=12 HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(WEIR_COMMIT ${commit})
    # The log of HEAD grows with every commit, checkout and rebase: configure again then.
    execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --git-path logs/HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
      OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    get_filename_component(head ${head} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
    if(EXISTS ${head})
      set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${head})
    endif()
  endif()
endif()
set_source_files_properties(src/cli/command_version.c PROPERTIES COMPILE_DEFINITIONS
  "WEIR_VERSION=\"${PROJECT_VERSION}\";WEIR_COMMIT=\"${WEIR_COMMIT}\";WEIR_COMPILER=\"${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}\";WEIR_BUILD=\"${CMAKE_BUILD_TYPE}\";WEIR_SANITIZERS=\"${WEIR_SANITIZE}\"")

# What weir calls itself in requests, in its manual, and as a library.
set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/cli/command_get.c ${CMAKE_SOURCE_DIR}/src/cli/manual.c
  ${CMAKE_SOURCE_DIR}/src/lib/weir_values.c APPEND PROPERTY COMPILE_DEFINITIONS
  "WEIR_VERSION=\"${PROJECT_VERSION}\"")

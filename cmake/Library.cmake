# libweir, shared and static, with no symbols but weir_...: the version script sees to the one, and in the other everything
# is joined to one object whose hidden symbols are then made local.
set(WEIR_SOVERSION 0)

add_library(weir_shared SHARED $<TARGET_OBJECTS:weir_lib_objects>)
set_target_properties(weir_shared PROPERTIES OUTPUT_NAME weir VERSION ${PROJECT_VERSION} SOVERSION ${WEIR_SOVERSION}
  LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/lib/libweir.map)
target_link_libraries(weir_shared PRIVATE weir_core)
target_link_options(weir_shared PRIVATE
  "LINKER:--version-script=${CMAKE_SOURCE_DIR}/src/lib/libweir.map" LINKER:--as-needed)

add_custom_command(OUTPUT libweir.a
  COMMAND ${CMAKE_LINKER} -r -o libweir.o --whole-archive $<TARGET_FILE:weir_lib> --no-whole-archive $<TARGET_FILE:weir_core>
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden libweir.o
  COMMAND ${CMAKE_COMMAND} -E rm -f libweir.a
  COMMAND ${CMAKE_AR} rcs libweir.a libweir.o
  COMMAND ${CMAKE_COMMAND} -E rm -f libweir.o
  DEPENDS weir_lib weir_core WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
add_custom_target(weir_static ALL DEPENDS ${CMAKE_BINARY_DIR}/libweir.a)

# Where it is installed, pkg-config tells; and that is known only then.
set(WEIR_PC_URING "")
if(URING_FOUND)
  set(WEIR_PC_URING " liburing")
endif()
foreach(name PROJECT_VERSION CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR WEIR_PC_URING)
  install(CODE "set(${name} \"${${name}}\")" COMPONENT development)
endforeach()
install(CODE "configure_file(\"${CMAKE_SOURCE_DIR}/packaging/weir.pc.in\" \"${CMAKE_BINARY_DIR}/reference/weir.pc\" @ONLY)"
  COMPONENT development)

install(TARGETS weir_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${CMAKE_BINARY_DIR}/libweir.a DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES ${CMAKE_BINARY_DIR}/reference/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(DIRECTORY include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development FILES_MATCHING PATTERN "*.c")

# What `make install` puts where. Manual page and completions come from the program itself, which is why it is run with an
# empty environment: nobody's settings belong in them.
set(pages weir.1 weir-config.5 weir.bash _weir weir.fish)
list(TRANSFORM pages PREPEND ${CMAKE_BINARY_DIR}/reference/)
add_custom_command(OUTPUT ${pages}
  COMMAND ${CMAKE_COMMAND} -E make_directory reference
  COMMAND env -i $<TARGET_FILE:weir> help --man > reference/weir.1
  COMMAND env -i $<TARGET_FILE:weir> help config --man > reference/weir-config.5
  COMMAND env -i $<TARGET_FILE:weir> completion bash > reference/weir.bash
  COMMAND env -i $<TARGET_FILE:weir> completion zsh > reference/_weir
  COMMAND env -i $<TARGET_FILE:weir> completion fish > reference/weir.fish
  DEPENDS weir WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
add_custom_target(reference ALL DEPENDS ${pages})

configure_file(${CMAKE_SOURCE_DIR}/packaging/weir.service ${CMAKE_BINARY_DIR}/reference/weir.service @ONLY)

install(TARGETS weir RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_BINARY_DIR}/reference/weir.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/reference/weir-config.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${CMAKE_BINARY_DIR}/reference/weir.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME weir)
install(FILES ${CMAKE_BINARY_DIR}/reference/_weir DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${CMAKE_BINARY_DIR}/reference/weir.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${CMAKE_BINARY_DIR}/reference/weir.service DESTINATION lib/systemd/system)
install(FILES ${CMAKE_SOURCE_DIR}/packaging/weir.sysusers DESTINATION lib/sysusers.d RENAME weir.conf)
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md")
option(WEIR_INSTALL_LICENSE "Install the text of the licence (distributions have it already)" ON)
if(WEIR_INSTALL_LICENSE)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

# SPDX-License-Identifier: BSD-3-Clause
# `cmake --install`: what users need, in GNUInstallDirs' folders. No file names the prefix, so an
# installation can be moved; see base/installation.h for how its parts find each other.
set(TURNOUT_LIBFABRIC_FOLDER ${CMAKE_INSTALL_LIBDIR}/libfabric)
set(TURNOUT_ADAPTER_FOLDER ${CMAKE_INSTALL_LIBDIR}/turnout)

install(TARGETS turnout turnout_sim_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS turnout_fi LIBRARY DESTINATION ${TURNOUT_LIBFABRIC_FOLDER})
# Not for linking with: programs are given them in the place of rdma-core's.
install(TARGETS turnout_record LIBRARY DESTINATION ${TURNOUT_ADAPTER_FOLDER} NAMELINK_SKIP)
install(TARGETS turnout_ibverbs turnout_mlx5 turnout_rdmacm turnout_shim turnout_mlx5_device
  LIBRARY DESTINATION ${TURNOUT_ADAPTER_FOLDER} NAMELINK_SKIP)
install(TARGETS turnout_rdmacm_system
  LIBRARY DESTINATION ${TURNOUT_ADAPTER_FOLDER}/system NAMELINK_SKIP)
install(DIRECTORY profiles/ DESTINATION ${CMAKE_INSTALL_DATADIR}/turnout/profiles
  FILES_MATCHING PATTERN *.toml)
install(PROGRAMS tools/plot.py DESTINATION ${CMAKE_INSTALL_DATADIR}/turnout)
install(FILES docs/man/turnout.1 docs/man/turnout-sim.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES docs/man/fi_turnout.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)
install(FILES README.md LICENSE CHANGELOG.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES packaging/completion.bash RENAME turnout
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES packaging/completion.zsh RENAME _turnout
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

file(RELATIVE_PATH TURNOUT_PREFIX_FROM_LIBDIR /prefix/${CMAKE_INSTALL_LIBDIR} /prefix)
file(RELATIVE_PATH TURNOUT_PREFIX_FROM_MODULE
  /prefix/${CMAKE_INSTALL_DATADIR}/modulefiles/turnout /prefix)
# Both compute the prefix from where they are.
foreach(file turnout.pc modulefile)
  configure_file(packaging/${file}.in ${CMAKE_BINARY_DIR}/packaging/${file} @ONLY)
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/packaging/turnout.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/packaging/modulefile RENAME ${PROJECT_VERSION}
  DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/turnout)

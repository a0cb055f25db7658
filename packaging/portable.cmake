# Toolchain of the portable binaries: this machine's compiler with the headers and libraries of an old Debian (GS_SYSROOT,
# which packaging/sysroot.py makes). GS_MACHINE: x86_64 or aarch64.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GS_SYSROOT GS_MACHINE)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${GS_MACHINE})
set(CMAKE_SYSROOT ${GS_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE ${GS_MACHINE}-linux-gnu)
set(CMAKE_C_COMPILER ${GS_MACHINE}-linux-gnu-gcc)
# what is built and run to make files
set(CMAKE_CROSSCOMPILING_EMULATOR env)
if(NOT GS_MACHINE STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
    set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${GS_MACHINE} -L ${GS_SYSROOT})
endif()
# the cross compiler knows its own glibc, too: only the old one counts
foreach(kind CMAKE_EXE_LINKER_FLAGS_INIT CMAKE_SHARED_LINKER_FLAGS_INIT)
    set(${kind} "-B${GS_SYSROOT}/usr/lib/${GS_MACHINE}-linux-gnu -L${GS_SYSROOT}/usr/lib/${GS_MACHINE}-linux-gnu -L${GS_SYSROOT}/lib/${GS_MACHINE}-linux-gnu")
endforeach()
set(CMAKE_C_FLAGS_INIT "-isystem ${GS_SYSROOT}/usr/include/${GS_MACHINE}-linux-gnu -isystem ${GS_SYSROOT}/usr/include")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${GS_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${GS_SYSROOT}/usr/lib/${GS_MACHINE}-linux-gnu/pkgconfig:${GS_SYSROOT}/usr/share/pkgconfig)

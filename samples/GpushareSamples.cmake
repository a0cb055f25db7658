# How CUDA programs are built here: with nvcc, by custom commands, linked with simcudart or with NVIDIA's runtime. Included by
# samples/ and by tests/simcudart/.
# GS_CUDA_PROGRAMS says whether they can be built.
include_guard(DIRECTORY)

set(GS_CUDA_PROGRAMS ON)
set(reason "")
if(NOT GS_NVCC)
    set(reason "there is no nvcc (set CUDA_HOME, or run ./demo.sh, which fetches it)")
elseif(GS_SANITIZE AND NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # nvcc's host compiler is g++, and one program cannot have the sanitizers of two compilers
    set(reason "they would mix g++ with the sanitizers of ${CMAKE_C_COMPILER_ID}")
endif()
if(reason)
    set(GS_CUDA_PROGRAMS OFF)
    get_property(said GLOBAL PROPERTY GS_CUDA_PROGRAMS_SAID)
    if(NOT said)
        message(STATUS "samples and the tests that run them are left out, because ${reason}")
        set_property(GLOBAL PROPERTY GS_CUDA_PROGRAMS_SAID ON)
    endif()
endif()

# machine code for the card of today, and PTX from which the driver makes code for any other from Ampere on
set(GS_NVCC_ARCH -gencode arch=compute_90,code=sm_90 -gencode arch=compute_80,code=compute_80 CACHE STRING
    "architectures that the samples are built for")
set(GS_NVCC_FLAGS -O2 -std=c++17 -ccbin g++ ${GS_NVCC_ARCH} -I${CMAKE_CURRENT_LIST_DIR})
set(GS_NVCC_LINK -ccbin g++)
if(GS_SANITIZE)
    # one by one: nvcc takes a comma for its own
    string(REPLACE "," ";" sanitizers "${GS_SANITIZE}")
    foreach(sanitizer IN LISTS sanitizers)
        list(APPEND GS_NVCC_FLAGS -Xcompiler -fsanitize=${sanitizer})
        list(APPEND GS_NVCC_LINK -Xcompiler -fsanitize=${sanitizer})
    endforeach()
    list(APPEND GS_NVCC_FLAGS -Xcompiler -fno-omit-frame-pointer)
endif()

# gs_add_standin(name): <name>_standin.so from <name>_standin.c, here or in tests/programs
function(gs_add_standin name)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${name}_standin.c)
    if(NOT EXISTS ${source})
        set(source ${PROJECT_SOURCE_DIR}/tests/programs/${name}_standin.c)
    endif()
    add_library(sample_${name}_standin MODULE ${source})
    set_target_properties(sample_${name}_standin PROPERTIES PREFIX "" OUTPUT_NAME ${name}_standin)
    target_link_libraries(sample_${name}_standin PRIVATE gpushare::flags)
    # the driver finds the array by name; kernels are worth optimising in every build
    target_compile_options(sample_${name}_standin PRIVATE -fvisibility=default $<$<NOT:$<CONFIG:Debug>>:-O3>)
endfunction()

# gs_link_cuda(OUTPUT o OBJECT f CUDART static|shared [STRIP] [SIM] LINK ...): one program from one object file
function(gs_link_cuda)
    cmake_parse_arguments(L "STRIP;SIM" "OUTPUT;OBJECT;CUDART" "LINK" ${ARGN})
    set(link ${GS_NVCC} ${GS_NVCC_LINK} -cudart ${L_CUDART} ${L_OBJECT} -o ${L_OUTPUT})
    set(depends ${L_OBJECT})
    if(L_SIM)
        list(APPEND link -L${SIMCUDART_DIR} ${L_LINK})
        list(APPEND depends simcudart_static simcudart_shared)
    else()
        list(APPEND link ${L_LINK})
    endif()
    set(strip "")
    if(L_STRIP)
        set(strip COMMAND ${CMAKE_STRIP} ${L_OUTPUT})
    endif()
    add_custom_command(OUTPUT ${L_OUTPUT} COMMAND ${link} ${strip} DEPENDS ${depends} VERBATIM
        COMMENT "Linking CUDA sample ${L_OUTPUT}")
    set_property(DIRECTORY APPEND PROPERTY GS_SAMPLE_FILES ${L_OUTPUT})
endfunction()

# gs_compile_cuda(OUTPUT o SOURCE s FLAGS ...)
function(gs_compile_cuda)
    cmake_parse_arguments(C "" "OUTPUT;SOURCE" "FLAGS" ${ARGN})
    add_custom_command(OUTPUT ${C_OUTPUT} DEPENDS ${C_SOURCE} VERBATIM DEPFILE ${C_OUTPUT}.d
        COMMAND ${GS_NVCC} ${GS_NVCC_FLAGS} ${C_FLAGS} -MD -MF ${C_OUTPUT}.d -c ${C_SOURCE} -o ${C_OUTPUT}
        COMMENT "Compiling CUDA sample ${C_SOURCE}")
endfunction()

# gs_add_cuda_sample(name): builds <name>, <name>.nv and <name>_standin.so from <name>.cu and <name>_standin.c
function(gs_add_cuda_sample name)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    gs_compile_cuda(OUTPUT ${object} SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/${name}.cu)
    set_property(GLOBAL PROPERTY GS_SAMPLE_OBJECT_${name} ${object})
    gs_link_cuda(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name} OBJECT ${object} CUDART static STRIP SIM)
    if(GS_CUDART_STATIC)
        gs_link_cuda(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.nv OBJECT ${object} CUDART static STRIP)
    endif()
    gs_add_standin(${name})
endfunction()


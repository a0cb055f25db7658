# Finds the CUDA toolkit (13.0 or newer headers): CUDA_HOME, /usr/local/cuda, the nvcc on PATH, or the folder that
# scripts/setup.sh filled from NVIDIA's wheels. Sets GS_CUDA_HOME and GS_NVCC and makes gpushare::cuda_headers.
set(GS_CUDA_HINTS $ENV{CUDA_HOME} /usr/local/cuda ${PROJECT_SOURCE_DIR}/build/cuda)
find_program(GS_NVCC nvcc HINTS ${GS_CUDA_HINTS} PATH_SUFFIXES bin)
get_filename_component(GS_NVCC_REAL "${GS_NVCC}" REALPATH)
get_filename_component(GS_NVCC_BIN "${GS_NVCC_REAL}" DIRECTORY)
get_filename_component(GS_NVCC_HOME "${GS_NVCC_BIN}" DIRECTORY)
find_path(GS_CUDA_INCLUDE cudaTypedefs.h HINTS ${GS_CUDA_HINTS} ${GS_NVCC_HOME}
    PATH_SUFFIXES include targets/x86_64-linux/include REQUIRED)
find_file(GS_CUDA_STUB libcuda.so HINTS ${GS_CUDA_HINTS} ${GS_NVCC_HOME}
    PATH_SUFFIXES lib/stubs lib64/stubs targets/x86_64-linux/lib/stubs NO_DEFAULT_PATH)
find_file(GS_CUDART_STATIC libcudart_static.a HINTS ${GS_CUDA_HINTS} ${GS_NVCC_HOME}
    PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib NO_DEFAULT_PATH)
file(STRINGS ${GS_CUDA_INCLUDE}/cuda.h GS_CUDA_VERSION_LINE REGEX "^#define CUDA_VERSION ")
string(REGEX REPLACE "[^0-9]" "" GS_CUDA_VERSION "${GS_CUDA_VERSION_LINE}")
if(GS_CUDA_VERSION LESS 13000)
    message(FATAL_ERROR "${GS_CUDA_INCLUDE}/cuda.h is CUDA ${GS_CUDA_VERSION}; gpushare is built with 13.0 or newer headers "
        "(programs may use any older one). Set CUDA_HOME, or run ./demo.sh once, which fetches them.")
endif()
add_library(gpushare_cuda_headers INTERFACE)
add_library(gpushare::cuda_headers ALIAS gpushare_cuda_headers)
target_include_directories(gpushare_cuda_headers SYSTEM INTERFACE ${GS_CUDA_INCLUDE})
# driver_api.def names plain symbols that cuda.h would otherwise #define to their newest version
target_compile_definitions(gpushare_cuda_headers INTERFACE __CUDA_API_VERSION_INTERNAL)

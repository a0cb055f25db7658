# gpushare::door: the names and places of the fourth door (docs/architecture.md), here and nowhere else.
set(GS_DOOR_NAME libcuda.so.1)           # what programs ask the loader for
set(GS_DOOR_REAL libcuda-real.so.1)      # the name of the driver's own library behind it
set(GS_DOOR_FOLDER ${CMAKE_INSTALL_FULL_LIBDIR}/gpushare/door) # no folder that ldconfig reads
# The door names the driver's library by an absolute path of this length, filled with slashes, so that a copy for another
# folder differs in these bytes only.
set(GS_DOOR_PATH_LENGTH 255)
string(LENGTH "${GS_DOOR_FOLDER}${GS_DOOR_REAL}" used)
math(EXPR missing "${GS_DOOR_PATH_LENGTH} - ${used}")
if(missing LESS 1)
    message(FATAL_ERROR "the prefix is too long: ${GS_DOOR_FOLDER} may have ${GS_DOOR_PATH_LENGTH} characters with ${GS_DOOR_REAL}")
endif()
string(REPEAT "/" ${missing} slashes)
set(GS_DOOR_REAL_PATH "${GS_DOOR_FOLDER}${slashes}${GS_DOOR_REAL}")

add_library(gpushare_door_names INTERFACE)
add_library(gpushare::door ALIAS gpushare_door_names)
target_compile_definitions(gpushare_door_names INTERFACE GS_DOOR_NAME="${GS_DOOR_NAME}" GS_DOOR_REAL="${GS_DOOR_REAL}"
    GS_DOOR_FOLDER="${GS_DOOR_FOLDER}" GS_DOOR_PATH_LENGTH=${GS_DOOR_PATH_LENGTH})

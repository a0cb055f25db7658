# gpushare::flags: the warnings, hardening and sanitizers every C target of the project is built with.
add_library(gpushare_flags INTERFACE)
add_library(gpushare::flags ALIAS gpushare_flags)
target_compile_definitions(gpushare_flags INTERFACE _GNU_SOURCE GS_VERSION="${PROJECT_VERSION}")
target_include_directories(gpushare_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(gpushare_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wformat=2
    -Wvla -Wundef -Wcast-qual>
    -fstack-protector-strong -fno-omit-frame-pointer)
if(GS_WERROR)
    target_compile_options(gpushare_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
target_link_options(gpushare_flags INTERFACE -Wl,-z,relro,-z,now)
if(GS_SANITIZE)
    # A target with the property GS_NO_SANITIZER is built without: what comes up before the sanitizer's runtime can.
    set(GS_SANITIZED $<NOT:$<BOOL:$<TARGET_PROPERTY:GS_NO_SANITIZER>>>)
    string(REPLACE "," "$<COMMA>" GS_SANITIZE_WORDS "${GS_SANITIZE}")
    target_compile_options(gpushare_flags INTERFACE
        $<${GS_SANITIZED}:-fsanitize=${GS_SANITIZE_WORDS}> $<${GS_SANITIZED}:-fno-sanitize-recover=all>)
    target_link_options(gpushare_flags INTERFACE $<${GS_SANITIZED}:-fsanitize=${GS_SANITIZE_WORDS}>)
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT "${CMAKE_C_FLAGS} $ENV{CFLAGS} $ENV{CPPFLAGS}" MATCHES "_FORTIFY_SOURCE")
    target_compile_definitions(gpushare_flags INTERFACE _FORTIFY_SOURCE=2)
endif()

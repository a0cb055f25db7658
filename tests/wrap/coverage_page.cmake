# docs/coverage.md is what the table makes it. Run by ctest with GENERATOR and PAGE.
execute_process(COMMAND ${GENERATOR} coverage INPUT_FILE ${CMAKE_CURRENT_LIST_DIR}/../../wrap/coverage.md.in OUTPUT_VARIABLE made RESULT_VARIABLE status)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${GENERATOR} coverage ended with ${status}")
endif()
file(READ ${PAGE} page)
if(NOT page STREQUAL made)
    message(FATAL_ERROR "${PAGE} is not what wrap/driver_api.def makes: run 'ninja coverage_doc' and commit the page")
endif()

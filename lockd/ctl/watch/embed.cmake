# SPDX-License-Identifier: Apache-2.0
# Writes the bytes of IN as "'\\x3c','\\x21'," and so on to OUT, to be included in a C initialiser of characters.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUT} "${bytes}\n")

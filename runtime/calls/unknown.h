/* SPDX-License-Identifier: Apache-2.0
 *
 * unknown.h: driver functions that the program was given and that gpushare does not know.
 */
#pragma once

/* The program is given such a function (version 0: in no form that has a number): it is partly
 * covered from now on, and the call returns when its memory is on the device. With GPUSHARE_STRICT
 * nothing happens but a message, since the caller refuses the function. Said once for each name.
 * Any thread, outside the gate. */
void gs_unknown_given(const char *symbol, int version);

/* The same for a function of another copy of the driver. */
void gs_unknown_copy(const char *symbol);

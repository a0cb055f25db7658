/* SPDX-License-Identifier: Apache-2.0
 *
 * move_record.h: how far a move to another device has come (wire.h, GS_WIRE_MOVE), as one byte at
 * the start of a file without a name. The program makes the file; the guard that moves it writes it
 * before and after each driver call. So when the program's daemon, its guard or both are killed,
 * the others can tell which device the program is on: the driver does not tell whether a locked
 * process was restored, nor where.
 *
 * The guard holds a lock on the whole file (F_OFD_SETLK) while it works. The program may replace
 * NEW by STAYED if no process holds the lock; then the move does not take place.
 */
#pragma once

enum gs_move_record {
    GS_RECORD_NEW = '-',    /* no driver call was made */
    GS_RECORD_TAKEN = 'C',  /* it is being locked and checkpointed */
    GS_RECORD_ONTO = 'T',   /* it is being restored onto the other device */
    GS_RECORD_BACK = 'B',   /* it is being restored where it was */
    GS_RECORD_MOVED = 'M',  /* it runs on the other device */
    GS_RECORD_STAYED = 'S', /* it runs where it was */
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * notes.c: the last remarks of programs, also of those that have ended. Fixed memory: the same
 * remark of the same process is counted, a new one takes the place of the oldest.
 */
#include "lockd/log.h"
#include "lockd/server.h"

#include <string.h>

static struct lockd_note *slot_for(struct lockd_notes *notes,
                                   const struct lockd_connection *from, int32_t pid,
                                   const struct gs_wire_note *note)
{
    struct lockd_note *oldest = &notes->slot[0];

    for (int i = 0; i < LOCKD_NOTES; i++) {
        struct lockd_note *slot = &notes->slot[i];

        if (slot->at != 0 && slot->pid == pid && slot->kind == note->kind &&
            strcmp(slot->text, note->text) == 0 &&
            (slot->owner == from->id || strcmp(slot->name, note->name) == 0))
            return slot;
        if (slot->at < oldest->at)
            oldest = slot;
    }
    oldest->count = 0;
    return oldest;
}

void lockd_notes_add(struct lockd_notes *notes, const struct lockd_connection *from,
                     const struct gs_wire_note *note, uint64_t now)
{
    const int32_t pid = from->pid > 0 ? (int32_t)from->pid : note->pid;
    struct lockd_note *slot = slot_for(notes, from, pid, note);

    if (slot->count == 0)
        lockd_log(LOCKD_LOG_INFO, "%s (process %d): %s", note->name, pid, note->text);
    slot->owner = from->id;
    slot->at = now;
    slot->pid = pid;
    slot->kind = note->kind;
    slot->count += slot->count < UINT32_MAX;
    memcpy(slot->name, note->name, sizeof slot->name);
    memcpy(slot->text, note->text, sizeof slot->text);
}

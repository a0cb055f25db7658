/* SPDX-License-Identifier: Apache-2.0
 *
 * remarks.c: the last remarks of programs, including programs that have ended. The table has a
 * fixed size: a repeated remark of a process is counted, and in a full table a new remark replaces
 * an old one of the account (a user, or a user in a container) with the most remarks
 * (base/slots.h).
 */
#include "lockd/server/remarks.h"

#include "lockd/base/clock.h"
#include "lockd/base/halt.h"
#include "lockd/base/log.h"
#include "lockd/server/server.h"
#include "lockd/server/users.h"

#include <stdio.h>
#include <string.h>

static struct lockd_remark *find_slot(struct lockd_remarks *remarks,
                                      const struct lockd_connection *from, int32_t pid,
                                      const struct gs_wire_note *note)
{
    struct lockd_remark *slot;

    for (int i = 0; i < LOCKD_REMARKS; i++) {
        slot = &remarks->slot[i];
        if (slot->stamp.at != 0 && slot->pid == pid && slot->kind == note->kind &&
            strcmp(slot->text, note->text) == 0 &&
            (slot->owner == from->id || strcmp(slot->name, note->name) == 0))
            return slot;
    }
    slot = &remarks->slot[lockd_slots_choose(remarks->slot, LOCKD_REMARKS, sizeof *slot,
                                             from->user->number)];
    slot->count = 0;
    return slot;
}

void lockd_remarks_add(struct lockd_remarks *remarks, const struct lockd_connection *from,
                       const struct gs_wire_note *note, uint64_t now)
{
    const int32_t pid = from->peer.pid > 0 ? (int32_t)from->peer.pid : note->pid;
    struct lockd_remark *slot = find_slot(remarks, from, pid, note);

    if (slot->count == 0)
        lockd_user_say(from->user, LOCKD_LOG_INFO, "%s (process %d): %s", note->name, pid,
                       note->text);
    slot->owner = from->id;
    slot->stamp.at = now;
    slot->pid = pid;
    slot->stamp.owner = from->user->number;
    slot->kind = note->kind;
    slot->count += slot->count < UINT32_MAX;
    memcpy(slot->name, note->name, sizeof slot->name);
    memcpy(slot->text, note->text, sizeof slot->text);
}

void lockd_remarks_say(const struct lockd_connection *about, const char *text)
{
    struct gs_wire_note note = {.pid = (int32_t)about->peer.pid, .kind = GS_NOTE_OTHER};

    memcpy(note.name, about->hello.name, sizeof note.name);
    snprintf(note.text, sizeof note.text, "%s", text);
    lockd_remarks_add(&about->server->remarks, about, &note, lockd_now());
}

/* Only people can let a stopped process go on. */
static void say_halted(const struct lockd_connection *of)
{
    const enum lockd_halt halt =
        of->peer.foreign || of->peer.pid <= 0 ? LOCKD_HALT_NONE : lockd_halt_of(of->peer.pid);
    char text[128];

    if (halt == LOCKD_HALT_NONE)
        return;
    if (halt == LOCKD_HALT_STOPPED)
        snprintf(text, sizeof text, "stopped (T): kill -CONT %d; others wait for memory",
                 (int)of->peer.pid);
    else
        snprintf(text, sizeof text, "%s; others wait for memory",
                 halt == LOCKD_HALT_TRACED ? "in a debugger (t)"
                                           : "frozen with its control group");
    lockd_remarks_say(of, text);
}

static void say_apart(const struct lockd_connection *of, const char *group, const char *device)
{
    struct gs_wire_note note = {.pid = (int32_t)of->peer.pid, .kind = GS_NOTE_OTHER};

    if (group[0] != '\0')
        snprintf(note.name, sizeof note.name, "group %.24s", group);
    else /* it has no name */
        snprintf(note.name, sizeof note.name, "gang of %.23s", of->hello.name);
    snprintf(note.text, sizeof note.text,
             "its programs together need more memory than %.63s has for them, so they "
             "take turns separately",
             device);
    lockd_remarks_add(&of->server->remarks, of, &note, lockd_now());
}

void lockd_remarks_programs(struct lockd_server *server)
{
    struct sched_remark remark;

    while (sched_next_remark(server->scheduler, &remark)) {
        if (remark.contradicted)
            lockd_remarks_say(remark.owner,
                              "its reports of GPU memory contradict the GPU, or another user's "
                              "programs: others do not wait for it, and it may go last");
        if (remark.silent)
            say_halted(remark.owner);
        if (remark.group != NULL)
            say_apart(remark.owner, remark.group, remark.device);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * wire_check.c: checks messages from a socket. No state. The daemon checks what programs send and
 * gpusharectl checks what the daemon sends; neither trusts the other.
 */
#include "lockd/base/text.h"
#include "lockd/protocol/setting_table.h"
#include "lockd/protocol/wire_check.h"

#include <errno.h>
#include <stdio.h>

#define TRACE_MAX_NS (3600ull * 1000000000)

size_t lockd_wire_size(unsigned type)
{
    switch (type) {
    case GS_WIRE_HELLO:
        return sizeof(struct gs_wire_hello);
    case GS_WIRE_STATE:
        return sizeof(struct gs_wire_state);
    case GS_WIRE_NOTE:
        return sizeof(struct gs_wire_note);
    case GS_WIRE_KIN:
        return sizeof(struct gs_wire_kin);
    case GS_WIRE_TARGET:
        return sizeof(struct gs_wire_target);
    case GS_WIRE_OPEN:
        return sizeof(struct gs_wire_open);
    case GS_WIRE_SHARE:
        return sizeof(struct gs_wire_share);
    case GS_WIRE_WISH:
        return sizeof(struct gs_wire_wish);
    case GS_WIRE_SEES:
        return sizeof(struct gs_wire_sees);
    case GS_WIRE_MOVE:
        return sizeof(struct gs_wire_move);
    case GS_WIRE_COPY:
        return sizeof(struct gs_wire_copy);
    case GS_WIRE_RELOCATE:
        return sizeof(struct gs_wire_relocate);
    case GS_WIRE_STATUS:
        return sizeof(struct gs_wire_header);
    case GS_WIRE_CONTROL:
        return sizeof(struct gs_wire_control);
    case GS_WIRE_DAEMON:
        return sizeof(struct gs_wire_daemon);
    case GS_WIRE_DEVICE:
        return sizeof(struct gs_wire_device);
    case GS_WIRE_CLIENT:
        return sizeof(struct gs_wire_client);
    case GS_WIRE_TOTALS:
        return sizeof(struct gs_wire_totals);
    case GS_WIRE_REMARK:
        return sizeof(struct gs_wire_remark);
    case GS_WIRE_END:
        return sizeof(struct gs_wire_end);
    case GS_WIRE_TRACE:
        return sizeof(struct gs_wire_trace);
    case GS_WIRE_EVENT:
        return sizeof(struct gs_wire_event);
    case GS_WIRE_GET:
        return sizeof(struct gs_wire_get);
    case GS_WIRE_ACCOUNT:
        return sizeof(struct gs_wire_account);
    case GS_WIRE_SETTING:
        return sizeof(struct gs_wire_setting);
    default:
        return 0;
    }
}

void lockd_wire_header(struct gs_wire_header *header, enum gs_wire_type type)
{
    *header = (struct gs_wire_header){
        .magic = GS_WIRE_MAGIC,
        .version = GS_WIRE_VERSION,
        .type = (uint16_t)type,
        .length = (uint32_t)lockd_wire_size(type),
    };
}

struct gs_wire_end lockd_wire_end(int code, uint32_t count, const char *format, va_list ap)
{
    struct gs_wire_end end = {.code = code, .count = count};

    lockd_wire_header(&end.header, GS_WIRE_END);
    vsnprintf(end.text, sizeof end.text, format, ap);
    return end;
}

#define CLEAN(field) lockd_text_clean(field, sizeof(field))

static int check_state(struct gs_wire_state *state, struct gs_err *err)
{
    CLEAN(state->device_name);
    if ((state->flags & ~GS_STATE_ALL) != 0 || state->zero != 0)
        return gs_err_set(err, -EBADMSG, "state: unknown flags %#x, and %u where 0 must be",
                          state->flags & ~GS_STATE_ALL, state->zero);
    if (state->device_total == 0 || state->device_total > LOCKD_BYTES_MAX)
        return gs_err_set(err, -EBADMSG, "state: a device of %llu bytes",
                          (unsigned long long)state->device_total);
    if (state->device_free != UINT64_MAX && state->device_free > LOCKD_BYTES_MAX)
        return gs_err_set(err, -EBADMSG, "state: %llu bytes free",
                          (unsigned long long)state->device_free);
    if (state->demand > LOCKD_BYTES_MAX || state->short_bytes > LOCKD_BYTES_MAX)
        return gs_err_set(err, -EBADMSG, "state: demand of %llu bytes, %llu short",
                          (unsigned long long)state->demand,
                          (unsigned long long)state->short_bytes);
    if (state->resident > LOCKD_BYTES_MAX || state->stays > state->resident)
        return gs_err_set(err, -EBADMSG, "state: %llu bytes resident, %llu of them stay",
                          (unsigned long long)state->resident,
                          (unsigned long long)state->stays);
    if (state->pinned > LOCKD_BYTES_MAX || state->pinned_graphs > state->pinned ||
        state->pinned_arrays > state->pinned || state->host_used > LOCKD_BYTES_MAX ||
        state->host_wanted > LOCKD_BYTES_MAX)
        return gs_err_set(
            err, -EBADMSG, "state: %llu bytes pinned, %llu on the host, %llu wanted",
            (unsigned long long)state->pinned, (unsigned long long)state->host_used,
            (unsigned long long)state->host_wanted);
    if (state->over > state->host_used)
        return gs_err_set(err, -EBADMSG, "state: %llu bytes beyond the card, %llu on the host",
                          (unsigned long long)state->over,
                          (unsigned long long)state->host_used);
    if (state->shared > state->pinned)
        return gs_err_set(err, -EBADMSG, "state: %llu bytes shared, %llu pinned",
                          (unsigned long long)state->shared, (unsigned long long)state->pinned);
    if (state->given > GS_GIVEN_MOST)
        return gs_err_set(err, -EBADMSG, "state: %u pieces given", state->given);
    for (unsigned i = 0; i < GS_GIVEN_MOST; i++)
        if (state->given_bytes[i] > LOCKD_BYTES_MAX ||
            (i >= state->given && state->given_bytes[i] != 0))
            return gs_err_set(err, -EBADMSG, "state: %llu bytes given in piece %u of %u",
                              (unsigned long long)state->given_bytes[i], i, state->given);
    return 0;
}

static int check_share(const struct gs_wire_share *share, struct gs_err *err)
{
    if (share->code > 0 || share->count > GS_SHARE_MOST ||
        (share->code != 0) == (share->count != 0))
        return gs_err_set(err, -EBADMSG, "share: code %d, %u chunks", share->code,
                          share->count);
    if (share->bytes > LOCKD_BYTES_MAX || share->chunk_bytes > LOCKD_BYTES_MAX ||
        share->offset > share->bytes || share->size > share->bytes - share->offset)
        return gs_err_set(err, -EBADMSG, "share: %llu bytes at %llu of %llu",
                          (unsigned long long)share->size, (unsigned long long)share->offset,
                          (unsigned long long)share->bytes);
    return 0;
}

static int check_hello(struct gs_wire_hello *hello, struct gs_err *err)
{
    CLEAN(hello->name);
    CLEAN(hello->version);
    CLEAN(hello->group);
    if (hello->pid < 0 || hello->class >= GS_CLASS_COUNT)
        return gs_err_set(err, -EBADMSG, "hello: process %d, and %u where 0 must be",
                          hello->pid, hello->class);
    if (hello->weight > GS_WEIGHT_MAX)
        return gs_err_set(err, -EBADMSG, "hello: weight %u, at most %d", hello->weight,
                          GS_WEIGHT_MAX);
    if (hello->priority < -GS_PRIORITY_MAX || hello->priority > GS_PRIORITY_MAX)
        return gs_err_set(err, -EBADMSG, "hello: priority %d, must be %d to %d",
                          hello->priority, -GS_PRIORITY_MAX, GS_PRIORITY_MAX);
    return 0;
}

static int check_note(struct gs_wire_note *note, struct gs_err *err)
{
    CLEAN(note->name);
    CLEAN(note->text);
    if (note->pid < 0 || note->kind < GS_NOTE_UNROUTED || note->kind > GS_NOTE_OTHER)
        return gs_err_set(err, -EBADMSG, "note: process %d, kind %u", note->pid, note->kind);
    return 0;
}

static int check_kin(const struct gs_wire_kin *kin, struct gs_err *err)
{
    const bool evidence = kin->kind >= GS_KIN_SENT_FIRST && kin->kind <= GS_KIN_SENT_LAST;
    const bool hint = kin->kind >= GS_KIN_HINT_FIRST && kin->kind <= GS_KIN_HINT_LAST;

    if ((!evidence && !hint) || (kin->flags & ~GS_KIN_OVER) != 0 || (hint && kin->ranks != 0) ||
        kin->ranks > GS_KIN_RANKS_MOST)
        return gs_err_set(err, -EBADMSG, "kin: kind %u, flags %#x, %u ranks", kin->kind,
                          kin->flags, kin->ranks);
    return 0;
}

static int check_wish(const struct gs_wire_wish *wish, struct gs_err *err)
{
    const bool says_class = (wish->flags & GS_WISH_CLASS) != 0;

    if ((wish->flags & ~GS_WISH_ALL) != 0)
        return gs_err_set(err, -EBADMSG, "wish: unknown flags %#x", wish->flags & ~GS_WISH_ALL);
    if (wish->class_number >= (says_class ? GS_CLASS_COUNT : 1))
        return gs_err_set(err, -EBADMSG, "wish: class %u, must be 0 to %u", wish->class_number,
                          says_class ? GS_CLASS_COUNT - 1 : 0);
    return 0;
}

static int check_sees(struct gs_wire_sees *sees, struct gs_err *err)
{
    CLEAN(sees->name);
    if (sees->count > GS_SEES_MOST || sees->index >= sees->count ||
        sees->total > LOCKD_BYTES_MAX)
        return gs_err_set(err, -EBADMSG, "sees: device %u of %u, %llu bytes", sees->index,
                          sees->count, (unsigned long long)sees->total);
    return 0;
}

static int check_move(struct gs_wire_move *move, struct gs_err *err)
{
    CLEAN(move->text);
    if (move->step < GS_MOVE_ASK || move->step > GS_MOVE_LEFT || move->code > 0 ||
        move->zero != 0 || move->pinned > LOCKD_BYTES_MAX)
        return gs_err_set(err, -EBADMSG,
                          "move: step %u, code %d, %llu bytes, and %u where 0 must be",
                          move->step, move->code, (unsigned long long)move->pinned, move->zero);
    return 0;
}

static int check_copy(const struct gs_wire_copy *copy, struct gs_err *err)
{
    if (copy->bytes == 0 || copy->bytes > GS_COPY_MOST || copy->own > 1 || copy->zero != 0)
        return gs_err_set(err, -EBADMSG, "copy: %llu bytes, own %u, and %u where 0 must be",
                          (unsigned long long)copy->bytes, copy->own, copy->zero);
    return 0;
}

static int check_relocate(const struct gs_wire_relocate *relocate, struct gs_err *err)
{
    if (relocate->pid <= 0 || relocate->zero != 0)
        return gs_err_set(err, -EBADMSG, "relocate: process %d, and %u where 0 must be",
                          relocate->pid, relocate->zero);
    return 0;
}

static int check_control(const struct gs_wire_control *control, struct gs_err *err)
{
    switch (control->op) {
    case GS_CONTROL_PAUSE:
    case GS_CONTROL_RESUME:
    case GS_CONTROL_EVICT:
    case GS_CONTROL_SUSPEND:
    case GS_CONTROL_RELOAD:
        break;
    default:
        if (lockd_setting_of_op(control->op) == NULL)
            return gs_err_set(err, -EBADMSG, "control: unknown operation %u", control->op);
    }
    if (control->pid < 0)
        return gs_err_set(err, -EBADMSG, "control: process %d", control->pid);
    return 0;
}

static int check_get(const struct gs_wire_get *get, struct gs_err *err)
{
    if (get->pid < 0 || get->zero != 0)
        return gs_err_set(err, -EBADMSG, "get: process %d, and %u where 0 must be", get->pid,
                          get->zero);
    return 0;
}

static int check_setting(struct gs_wire_setting *setting, struct gs_err *err)
{
    CLEAN(setting->name);
    CLEAN(setting->text);
    CLEAN(setting->program);
    if (setting->name[0] == '\0' || setting->pid < 0 || setting->zero != 0)
        return gs_err_set(err, -EBADMSG, "setting '%s': process %d, and %u where 0 must be",
                          setting->name, setting->pid, setting->zero);
    return 0;
}

static int check_account(struct gs_wire_account *account, struct gs_err *err)
{
    CLEAN(account->group);
    if (account->group[0] == '\0' || account->connected > account->programs)
        return gs_err_set(err, -EBADMSG, "account of group '%s': %u of %u programs connected",
                          account->group, account->connected, account->programs);
    return 0;
}

static int check_body(union lockd_message *message, struct gs_err *err)
{
    switch (message->header.type) {
    case GS_WIRE_HELLO:
        return check_hello(&message->hello, err);
    case GS_WIRE_STATE:
        return check_state(&message->state, err);
    case GS_WIRE_NOTE:
        return check_note(&message->note, err);
    case GS_WIRE_KIN:
        return check_kin(&message->kin, err);
    case GS_WIRE_SHARE:
        return check_share(&message->share, err);
    case GS_WIRE_WISH:
        return check_wish(&message->wish, err);
    case GS_WIRE_SEES:
        return check_sees(&message->sees, err);
    case GS_WIRE_MOVE:
        return check_move(&message->move, err);
    case GS_WIRE_COPY:
        return check_copy(&message->copy, err);
    case GS_WIRE_RELOCATE:
        return check_relocate(&message->relocate, err);
    case GS_WIRE_CONTROL:
        return check_control(&message->control, err);
    case GS_WIRE_DAEMON:
        CLEAN(message->daemon.version);
        return 0;
    case GS_WIRE_DEVICE:
        CLEAN(message->device.name);
        return 0;
    case GS_WIRE_CLIENT:
        CLEAN(message->client.name);
        CLEAN(message->client.version);
        CLEAN(message->client.group);
        CLEAN(message->client.container);
        CLEAN(message->client.pod);
        return 0;
    case GS_WIRE_TOTALS:
        CLEAN(message->totals.name);
        return 0;
    case GS_WIRE_REMARK:
        CLEAN(message->remark.name);
        CLEAN(message->remark.text);
        return 0;
    case GS_WIRE_TRACE:
        if (message->trace.duration_ns == 0 || message->trace.duration_ns > TRACE_MAX_NS)
            return gs_err_set(err, -EBADMSG, "trace: %llu ns, must be 1 ns to 1 h",
                              (unsigned long long)message->trace.duration_ns);
        return 0;
    case GS_WIRE_EVENT:
        CLEAN(message->event.name);
        return 0;
    case GS_WIRE_GET:
        return check_get(&message->get, err);
    case GS_WIRE_SETTING:
        return check_setting(&message->setting, err);
    case GS_WIRE_ACCOUNT:
        return check_account(&message->account, err);
    case GS_WIRE_END:
        CLEAN(message->end.text);
        return 0;
    default:
        return 0;
    }
}

int lockd_wire_check(union lockd_message *message, size_t size, struct gs_err *err)
{
    const struct gs_wire_header *header = &message->header;

    if (size < sizeof *header)
        return gs_err_set(err, -EBADMSG, "a message of %zu bytes", size);
    if (header->magic != GS_WIRE_MAGIC)
        return gs_err_set(err, -EBADMSG, "magic is %#x, not gpushare's", header->magic);
    if (header->version != GS_WIRE_VERSION)
        return gs_err_set(
            err, -EPROTONOSUPPORT,
            "protocol version %u, this side speaks %u: use the same gpushare release "
            "on both sides",
            header->version, GS_WIRE_VERSION);
    if (lockd_wire_size(header->type) == 0)
        return gs_err_set(err, -EBADMSG, "unknown message type %u", header->type);
    if (header->length != size || lockd_wire_size(header->type) != size)
        return gs_err_set(err, -EBADMSG, "message type %u: %zu bytes, says %u, must be %zu",
                          header->type, size, header->length, lockd_wire_size(header->type));
    if (header->zero != 0)
        return gs_err_set(err, -EBADMSG, "message type %u: %u at the header's end, must be 0",
                          header->type, header->zero);
    return check_body(message, err);
}

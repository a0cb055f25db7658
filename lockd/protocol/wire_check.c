/* SPDX-License-Identifier: Apache-2.0
 *
 * wire_check.c: checks messages from a socket. No state. The daemon checks what programs send and
 * gpusharectl checks what the daemon sends; neither trusts the other.
 */
#include "lockd/base/text.h"
#include "lockd/protocol/names.h"
#include "lockd/protocol/setting_table.h"
#include "lockd/protocol/wire_check.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#define TRACE_MAX_NS (3600ull * 1000000000)

static int check_state(const void *message, struct gs_err *err)
{
    const struct gs_wire_state *state = message;

    if ((state->flags & ~GS_STATE_ALL) != 0)
        return gs_err_set(err, -EBADMSG, "state: unknown flags %#x",
                          state->flags & ~GS_STATE_ALL);
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
    if (state->given > GS_GIVEN_MOST || state->given_network >> state->given != 0)
        return gs_err_set(err, -EBADMSG, "state: %u pieces given, and %#x of them for network",
                          state->given, state->given_network);
    for (unsigned i = 0; i < GS_GIVEN_MOST; i++)
        if (state->given_bytes[i] > LOCKD_BYTES_MAX ||
            (i >= state->given && state->given_bytes[i] != 0))
            return gs_err_set(err, -EBADMSG, "state: %llu bytes given in piece %u of %u",
                              (unsigned long long)state->given_bytes[i], i, state->given);
    return 0;
}

static int check_share(const void *message, struct gs_err *err)
{
    const struct gs_wire_share *share = message;

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

static int check_hello(const void *message, struct gs_err *err)
{
    const struct gs_wire_hello *hello = message;

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

static int check_note(const void *message, struct gs_err *err)
{
    const struct gs_wire_note *note = message;

    if (note->pid < 0 || note->kind < GS_NOTE_UNROUTED || note->kind > GS_NOTE_OTHER)
        return gs_err_set(err, -EBADMSG, "note: process %d, kind %u", note->pid, note->kind);
    return 0;
}

static int check_kin(const void *message, struct gs_err *err)
{
    const struct gs_wire_kin *kin = message;
    const bool evidence = kin->kind >= GS_KIN_SENT_FIRST && kin->kind <= GS_KIN_SENT_LAST;
    const bool hint = kin->kind >= GS_KIN_HINT_FIRST && kin->kind <= GS_KIN_HINT_LAST;

    if ((!evidence && !hint) || (kin->flags & ~GS_KIN_OVER) != 0 || (hint && kin->ranks != 0) ||
        kin->ranks > GS_KIN_RANKS_MOST)
        return gs_err_set(err, -EBADMSG, "kin: kind %u, flags %#x, %u ranks", kin->kind,
                          kin->flags, kin->ranks);
    return 0;
}

static int check_wish(const void *message, struct gs_err *err)
{
    const struct gs_wire_wish *wish = message;
    const bool says_class = (wish->flags & GS_WISH_CLASS) != 0;

    if ((wish->flags & ~GS_WISH_ALL) != 0)
        return gs_err_set(err, -EBADMSG, "wish: unknown flags %#x", wish->flags & ~GS_WISH_ALL);
    if (wish->class_number >= (says_class ? GS_CLASS_COUNT : 1))
        return gs_err_set(err, -EBADMSG, "wish: class %u, must be 0 to %u", wish->class_number,
                          says_class ? GS_CLASS_COUNT - 1 : 0);
    return 0;
}

static int check_sees(const void *message, struct gs_err *err)
{
    const struct gs_wire_sees *sees = message;

    if (sees->count > GS_SEES_MOST || sees->index >= sees->count ||
        sees->total > LOCKD_BYTES_MAX)
        return gs_err_set(err, -EBADMSG, "sees: device %u of %u, %llu bytes", sees->index,
                          sees->count, (unsigned long long)sees->total);
    return 0;
}

static int check_move(const void *message, struct gs_err *err)
{
    const struct gs_wire_move *move = message;

    if (move->step < GS_MOVE_ASK || move->step > GS_MOVE_LEFT || move->code > 0 ||
        move->zero != 0 || move->pinned > LOCKD_BYTES_MAX)
        return gs_err_set(err, -EBADMSG,
                          "move: step %u, code %d, %llu bytes, and %u where 0 must be",
                          move->step, move->code, (unsigned long long)move->pinned, move->zero);
    return 0;
}

static int check_copy(const void *message, struct gs_err *err)
{
    const struct gs_wire_copy *copy = message;

    if (copy->bytes == 0 || copy->bytes > GS_COPY_MOST || copy->own > 1 || copy->zero != 0)
        return gs_err_set(err, -EBADMSG, "copy: %llu bytes, own %u, and %u where 0 must be",
                          (unsigned long long)copy->bytes, copy->own, copy->zero);
    return 0;
}

static int check_relocate(const void *message, struct gs_err *err)
{
    const struct gs_wire_relocate *relocate = message;

    if (relocate->pid <= 0 || relocate->zero != 0)
        return gs_err_set(err, -EBADMSG, "relocate: process %d, and %u where 0 must be",
                          relocate->pid, relocate->zero);
    return 0;
}

static int check_control(const void *message, struct gs_err *err)
{
    const struct gs_wire_control *control = message;

    if (lockd_operation_name(control->op) == NULL && lockd_setting_of_op(control->op) == NULL)
        return gs_err_set(err, -EBADMSG, "control: unknown operation %u", control->op);
    if (control->pid < 0)
        return gs_err_set(err, -EBADMSG, "control: process %d", control->pid);
    return 0;
}

static int check_get(const void *message, struct gs_err *err)
{
    const struct gs_wire_get *get = message;

    if (get->pid < 0 || get->zero != 0)
        return gs_err_set(err, -EBADMSG, "get: process %d, and %u where 0 must be", get->pid,
                          get->zero);
    return 0;
}

static int check_setting(const void *message, struct gs_err *err)
{
    const struct gs_wire_setting *setting = message;

    if (setting->name[0] == '\0' || setting->pid < 0 || setting->zero != 0)
        return gs_err_set(err, -EBADMSG, "setting '%s': process %d, and %u where 0 must be",
                          setting->name, setting->pid, setting->zero);
    return 0;
}

static int check_account(const void *message, struct gs_err *err)
{
    const struct gs_wire_account *account = message;

    if (account->group[0] == '\0' || account->connected > account->programs)
        return gs_err_set(err, -EBADMSG, "account of group '%s': %u of %u programs connected",
                          account->group, account->connected, account->programs);
    return 0;
}

static int check_trace(const void *message, struct gs_err *err)
{
    const struct gs_wire_trace *trace = message;

    if (trace->duration_ns == 0 || trace->duration_ns > TRACE_MAX_NS)
        return gs_err_set(err, -EBADMSG, "trace: %llu ns, must be 1 ns to 1 h",
                          (unsigned long long)trace->duration_ns);
    return 0;
}

#define TEXTS_MOST 5
#define TEXT(type, field)                                                                      \
    {                                                                                          \
        offsetof(struct gs_wire_##type, field), sizeof(((struct gs_wire_##type *)NULL)->field) \
    }

static const struct kind {
    size_t size; /* 0: no message has this type */
    int (*check)(const void *message, struct gs_err *err);
    struct {
        size_t offset, size;
    } texts[TEXTS_MOST]; /* of size 0: no more */
} kinds[] = {
#define KIND(type, name, check, ...)                                                           \
    [GS_WIRE_##type] = {sizeof(struct gs_wire_##name), check, {__VA_ARGS__}}
    KIND(HELLO, hello, check_hello, TEXT(hello, name), TEXT(hello, version),
         TEXT(hello, group)),
    KIND(STATE, state, check_state, TEXT(state, device_name)),
    KIND(NOTE, note, check_note, TEXT(note, name), TEXT(note, text)),
    KIND(KIN, kin, check_kin, {0}),
    KIND(TARGET, target, NULL, {0}),
    KIND(OPEN, open, NULL, {0}),
    KIND(SHARE, share, check_share, {0}),
    KIND(WISH, wish, check_wish, {0}),
    KIND(SEES, sees, check_sees, TEXT(sees, name)),
    KIND(MOVE, move, check_move, TEXT(move, text)),
    KIND(COPY, copy, check_copy, {0}),
    KIND(RELOCATE, relocate, check_relocate, {0}),
    KIND(STATUS, header, NULL, {0}),
    KIND(CONTROL, control, check_control, {0}),
    KIND(DAEMON, daemon, NULL, TEXT(daemon, version)),
    KIND(DEVICE, device, NULL, TEXT(device, name)),
    KIND(CLIENT, client, NULL, TEXT(client, name), TEXT(client, version), TEXT(client, group),
         TEXT(client, container), TEXT(client, pod)),
    KIND(TOTALS, totals, NULL, TEXT(totals, name)),
    KIND(REMARK, remark, NULL, TEXT(remark, name), TEXT(remark, text)),
    KIND(END, end, NULL, TEXT(end, text)),
    KIND(TRACE, trace, check_trace, {0}),
    KIND(EVENT, event, NULL, TEXT(event, name)),
    KIND(GET, get, check_get, {0}),
    KIND(ACCOUNT, account, check_account, TEXT(account, group)),
    KIND(SETTING, setting, check_setting, TEXT(setting, name), TEXT(setting, text),
         TEXT(setting, program)),
};

size_t lockd_wire_size(unsigned type)
{
    return type < sizeof kinds / sizeof kinds[0] ? kinds[type].size : 0;
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

int lockd_wire_check(union lockd_message *message, size_t size, struct gs_err *err)
{
    const struct gs_wire_header *header = &message->header;
    const struct kind *kind;

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
    kind = &kinds[header->type];
    for (size_t i = 0; i < TEXTS_MOST && kind->texts[i].size != 0; i++)
        lockd_text_clean((char *)message + kind->texts[i].offset, kind->texts[i].size);
    return kind->check != NULL ? kind->check(message, err) : 0;
}

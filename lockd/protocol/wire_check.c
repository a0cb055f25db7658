/* SPDX-License-Identifier: Apache-2.0
 *
 * wire_check.c: checks messages from a socket. No state. The daemon checks what programs send and
 * gpusharectl checks what the daemon sends; neither trusts the other.
 */
#include "lockd/protocol/wire_check.h"
#include "lockd/base/text.h"
#include "lockd/protocol/setting_table.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* The names of the protocol's numbers, for people and in files. No state. */

const char *lockd_policy_name(uint32_t policy)
{
    static const char *const names[GS_POLICY_COUNT] = {
        [GS_POLICY_FAIR] = "fair",
        [GS_POLICY_FIFO] = "fifo",
        [GS_POLICY_RR] = "rr",
        [GS_POLICY_PRIORITY] = "priority",
    };

    return policy < GS_POLICY_COUNT ? names[policy] : NULL;
}

const char *lockd_operation_name(uint32_t op)
{
    static const char *const names[] = {
        [GS_CONTROL_PAUSE] = "pause",   [GS_CONTROL_RESUME] = "resume",
        [GS_CONTROL_EVICT] = "evict",   [GS_CONTROL_SUSPEND] = "suspend",
        [GS_CONTROL_RELOAD] = "reload",
    };

    return op < sizeof names / sizeof names[0] ? names[op] : NULL;
}

const char *lockd_class_name(uint32_t class_number)
{
    static const char *const names[GS_CLASS_COUNT] = {
        [GS_CLASS_AUTO] = "auto",
        [GS_CLASS_INTERACTIVE] = "interactive",
        [GS_CLASS_BATCH] = "batch",
        [GS_CLASS_BACKGROUND] = "background",
    };

    return class_number < GS_CLASS_COUNT ? names[class_number] : NULL;
}

/* In JSON, and in the notes of `gpusharectl status`. */
static const char *const kin_names[] = {
    [GS_KIN_GROUP] = "group",   [GS_KIN_MASTER] = "rendezvous", [GS_KIN_ELASTIC] = "torchrun",
    [GS_KIN_MPI] = "MPI",       [GS_KIN_SLURM] = "Slurm",       [GS_KIN_NCCL] = "NCCL",
    [GS_KIN_MEMORY] = "memory", [GS_KIN_TRIED] = "tried",       [GS_KIN_SHARED] = "host memory",
    [GS_KIN_PARENT] = "parent", [GS_KIN_SESSION] = "session",
};

const char *lockd_kin_name(uint32_t kind)
{
    return kind < sizeof kin_names / sizeof kin_names[0] ? kin_names[kind] : NULL;
}

char *lockd_uuid_text(const uint8_t *uuid, char *buffer)
{
    size_t at = (size_t)snprintf(buffer, LOCKD_UUID_SIZE, "GPU-");

    for (size_t i = 0; i < 16; i++)
        at += (size_t)snprintf(buffer + at, LOCKD_UUID_SIZE - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    return buffer;
}

bool lockd_uuid_read(const char *text, uint8_t *uuid)
{
    unsigned digits = 0;

    if (strncasecmp(text, "GPU-", 4) != 0 && strncasecmp(text, "MIG-", 4) != 0)
        return false;
    for (text += 4; *text != '\0'; text++) {
        static const char hex[] = "0123456789abcdef";
        const char *at = strchr(hex, *text | 0x20);

        if (*text == '-')
            continue;
        if (at == NULL || digits == 32)
            return false;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | (at - hex));
        digits++;
    }
    return digits == 32;
}

#define TRACE_MAX_NS (3600ull * 1000000000)

/* Each check returns the first rule that the message breaks, as it stands here; NULL: none. */
#define RULE(holds) ((holds) ? NULL : #holds)
#define CHECK(type, rules)                                                                     \
    static const char *check_##type(const void *message)                                       \
    {                                                                                          \
        const struct gs_wire_##type *type = message;                                           \
                                                                                               \
        return rules;                                                                          \
    }

static const char *check_state(const void *message)
{
    const struct gs_wire_state *state = message;
    const char *broken =
        RULE((state->flags & ~GS_STATE_ALL) == 0)
            ?: RULE(state->device_total != 0 && state->device_total <= LOCKD_BYTES_MAX)
            ?: RULE(state->device_free == UINT64_MAX || state->device_free <= LOCKD_BYTES_MAX)
            ?: RULE(state->demand <= LOCKD_BYTES_MAX && state->short_bytes <= LOCKD_BYTES_MAX)
            ?: RULE(state->resident <= LOCKD_BYTES_MAX && state->stays <= state->resident)
            ?: RULE(state->pinned <= LOCKD_BYTES_MAX && state->shared <= state->pinned)
            ?: RULE(state->pinned_graphs <= state->pinned)
            ?: RULE(state->pinned_arrays <= state->pinned)
            ?: RULE(state->host_used <= LOCKD_BYTES_MAX && state->over <= state->host_used)
            ?: RULE(state->host_wanted <= LOCKD_BYTES_MAX && state->loose <= LOCKD_BYTES_MAX)
            ?: RULE(state->given <= GS_GIVEN_MOST && state->given_network >> state->given == 0);

    for (unsigned i = 0; broken == NULL && i < GS_GIVEN_MOST; i++)
        broken = RULE(state->given_bytes[i] <= (i < state->given ? LOCKD_BYTES_MAX : 0));
    return broken;
}

CHECK(share,
      RULE(share->code <= 0 && share->count <= GS_SHARE_MOST)
      ?: RULE((share->code == 0) == (share->count != 0))
      ?: RULE(share->bytes <= LOCKD_BYTES_MAX && share->offset <= share->bytes)
      ?: RULE(share->chunk_bytes <= LOCKD_BYTES_MAX)
      ?: RULE(share->size <= share->bytes - share->offset))

CHECK(hello,
      RULE(hello->pid >= 0 && hello->class < GS_CLASS_COUNT)
      ?: RULE(hello->weight <= GS_WEIGHT_MAX)
      ?: RULE(hello->priority >= -GS_PRIORITY_MAX && hello->priority <= GS_PRIORITY_MAX))

CHECK(note, RULE(note->pid >= 0)
                ?: RULE(note->kind >= GS_NOTE_UNROUTED && note->kind <= GS_NOTE_OTHER))

static const char *check_kin(const void *message)
{
    const struct gs_wire_kin *kin = message;
    const bool evidence = kin->kind >= GS_KIN_SENT_FIRST && kin->kind <= GS_KIN_SENT_LAST;
    const bool hint = kin->kind >= GS_KIN_HINT_FIRST && kin->kind <= GS_KIN_HINT_LAST;

    return RULE(evidence || hint)
               ?: RULE((kin->flags & ~GS_KIN_OVER) == 0)
               ?: RULE(kin->ranks <= (hint ? 0 : GS_KIN_RANKS_MOST));
}

CHECK(wish, RULE((wish->flags & ~GS_WISH_ALL) == 0)
                ?: RULE(wish->class_number <
                        ((wish->flags & GS_WISH_CLASS) != 0 ? GS_CLASS_COUNT : 1)))

CHECK(sees, RULE(sees->count <= GS_SEES_MOST && sees->index < sees->count)
                ?: RULE(sees->total <= LOCKD_BYTES_MAX))

CHECK(move, RULE(move->step >= GS_MOVE_ASK && move->step <= GS_MOVE_LEFT)
                ?: RULE(move->code <= 0 && move->zero == 0 && move->pinned <= LOCKD_BYTES_MAX))

CHECK(copy, RULE(copy->bytes != 0 && copy->bytes <= GS_COPY_MOST)
                ?: RULE(copy->own <= 1 && copy->zero == 0))

CHECK(relocate, RULE(relocate->pid > 0 && relocate->zero == 0))

CHECK(control, RULE(lockd_operation_name(control->op) != NULL ||
                    lockd_setting_of_op(control->op) != NULL)
                   ?: RULE(control->pid >= 0))

CHECK(get, RULE(get->pid >= 0 && get->zero == 0))

CHECK(setting, RULE(setting->name[0] != '\0' && setting->pid >= 0 && setting->zero == 0))

CHECK(account, RULE(account->group[0] != '\0' && account->connected <= account->programs))

CHECK(trace, RULE(trace->duration_ns != 0 && trace->duration_ns <= TRACE_MAX_NS))

#define TEXTS_MOST 5
#define TEXT(type, field)                                                                      \
    {                                                                                          \
        offsetof(struct gs_wire_##type, field), sizeof(((struct gs_wire_##type *)NULL)->field) \
    }

static const struct kind {
    size_t size; /* 0: no message has this type */
    const char *(*check)(const void *message);
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
    const char *broken;

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
    broken = kind->check != NULL ? kind->check(message) : NULL;
    return broken == NULL ? 0
                          : gs_err_set(err, -EBADMSG, "message type %u breaks a rule: %s",
                                       header->type, broken);
}

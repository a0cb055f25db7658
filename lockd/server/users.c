/* SPDX-License-Identifier: Apache-2.0
 *
 * users.c: the accounts of users (they are few, so a list suffices), and the buckets that bound the
 * rate of messages and of lines in the log. One thread.
 */
#include "lockd/server/users.h"

#include "lockd/base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_NUMBER 0xc0000000u
#define AHEAD_NS     1000000000u   /* how much may be taken in advance */
#define SAY_EACH_NS  5000000000ull /* the time that pays for a line in the log */
#define SAY_MOST     200u          /* unpaid lines of one user */
#define LINE_SIZE    600

static bool is_used(const struct lockd_user *user, uint64_t now)
{
    return user->connections != 0 || user->closing.closers != 0 || user->said > now ||
           user->bucket > now || user->copies > now || user->move_at > now;
}

static void free_user(struct lockd_user *user)
{
    lockd_list_remove(&user->link);
    free(user);
}

struct lockd_user *lockd_user_get(struct lockd_list *users, uid_t uid, const char *container)
{
    const uint64_t now = lockd_now();
    struct lockd_user *user;
    uint32_t number = FIRST_NUMBER;

    lockd_each (struct lockd_user, each, users, link) {
        if (!is_used(each, now))
            free_user(each);
    }
    /* The numbers of containers' accounts begin above all uids that are used in practice. No two
     * accounts have the same number at the same time. */
    lockd_each (struct lockd_user, each, users, link) {
        if (strcmp(each->container, container) == 0 &&
            (container[0] != '\0' || each->uid == uid))
            return each;
        if (each->container[0] != '\0' && each->number >= number)
            number = each->number + 1;
    }
    user = calloc(1, sizeof *user);
    if (user == NULL)
        return NULL;
    user->uid = uid;
    user->number = container[0] != '\0' ? number : uid;
    snprintf(user->container, sizeof user->container, "%s", container);
    lockd_list_append(users, &user->link);
    return user;
}

void lockd_user_put(struct lockd_user *user)
{
    if (!is_used(user, lockd_now()))
        free_user(user);
}

void lockd_users_deinit(struct lockd_list *users)
{
    while (!lockd_list_empty(users))
        free_user(lockd_entry(users->next, struct lockd_user, link));
}

static bool may_say(struct lockd_user *user, uint64_t now)
{
    if (user->said < now)
        user->said = now;
    if (user->said > now + SAY_MOST * SAY_EACH_NS) {
        if (user->left_out == 0)
            lockd_log(
                LOCKD_LOG_WARNING,
                "user %u%s%.12s: there are too many lines about it, and some are left out",
                (unsigned)user->uid, user->container[0] != '\0' ? ", container " : "",
                user->container);
        user->left_out += user->left_out < UINT32_MAX;
        return false;
    }
    user->said += SAY_EACH_NS;
    return true;
}

void lockd_user_say(struct lockd_user *user, enum lockd_log_level level, const char *format,
                    ...)
{
    char line[LINE_SIZE];
    va_list ap;

    if (!may_say(user, lockd_now()))
        return;
    if (user->left_out != 0)
        lockd_log(LOCKD_LOG_WARNING, "user %u%s%.12s: %u lines about it were left out",
                  (unsigned)user->uid, user->container[0] != '\0' ? ", container " : "",
                  user->container, user->left_out);
    user->left_out = 0;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    lockd_log(level, "%s", line);
}

bool lockd_bucket_over(uint64_t bucket, uint64_t now)
{
    return bucket > now + AHEAD_NS;
}

void lockd_bucket_take(uint64_t *bucket, uint64_t rate, uint32_t count, uint64_t now)
{
    if (*bucket < now)
        *bucket = now;
    *bucket += (uint64_t)count * 1000000000u / rate;
}

uint64_t lockd_bucket_ready(uint64_t bucket)
{
    return bucket > AHEAD_NS ? bucket - AHEAD_NS : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * owner.c: reads subuid(5). Names are looked up in the file passwd(5) alone: a directory service
 * may take long to answer, and the daemon must not wait. No state.
 */
#include "lockd/programs/owner.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_number(const char *text, unsigned long *number)
{
    char *end;

    *number = strtoul(text, &end, 10);
    return end != text && (*end == '\0' || *end == '\n');
}

/* Whether a line "OWNER:FIRST:COUNT" has the uid; cuts the line into its three parts. */
static bool has_uid(char *line, uid_t uid, unsigned long *first)
{
    char *from = strchr(line, ':'), *many = from != NULL ? strchr(from + 1, ':') : NULL;
    unsigned long count;

    if (many == NULL)
        return false;
    *from++ = *many++ = '\0';
    return read_number(from, first) && read_number(many, &count) && uid >= *first &&
           uid - *first < count;
}

/* A line of passwd(5): "NAME:PASSWORD:UID:...". */
static uid_t find_user(const char *name, const char *passwd, uid_t otherwise)
{
    FILE *file = fopen(passwd, "re");
    char *line = NULL;
    size_t size = 0;
    uid_t uid = otherwise;

    while (file != NULL && getline(&line, &size, file) > 0) {
        const size_t length = strlen(name);
        const char *password = line + length, *after;
        unsigned long number;

        if (strncmp(line, name, length) != 0 || *password != ':')
            continue;
        after = strchr(password + 1, ':');
        if (after == NULL)
            continue;
        number = strtoul(after + 1, NULL, 10);
        uid = after[1] >= '0' && after[1] <= '9' ? (uid_t)number : otherwise;
        break;
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return uid;
}

uid_t lockd_owner_of(uid_t uid, const char *subuid, const char *passwd)
{
    FILE *file = fopen(subuid, "re");
    char *line = NULL;
    size_t size = 0;
    unsigned long first, number;
    uid_t owner = uid;

    while (file != NULL && getline(&line, &size, file) > 0)
        if (has_uid(line, uid, &first)) {
            owner = read_number(line, &number) ? (uid_t)number
                                               : find_user(line, passwd, (uid_t)first);
            break;
        }
    free(line);
    if (file != NULL)
        fclose(file);
    return owner;
}

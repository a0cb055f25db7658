/* SPDX-License-Identifier: Apache-2.0
 *
 * relations.h: connects kin.c (finds programs that are one job) and balance.c (finds
 * programs to move to another device) with connections; remarks on programs.
 */
#pragma once

#include "lockd/move/balance.h"
#include "lockd/programs/kin.h"

struct lockd_connection;
struct lockd_seen;
struct lockd_server;

struct lockd_relations {
    struct kin kin;
    struct balance balance;
};

/* The program in both. NULL: there was no memory for it, or balance is off. */
struct lockd_related {
    struct kin_program *kin;
    struct balance_program *balance;
};

void lockd_relations_init(struct lockd_server *server);
void lockd_relations_deinit(struct lockd_server *server);
/* A program has sent HELLO. */
void lockd_relations_came(struct lockd_connection *connection);
/* The program has gone. To be called before its client goes. */
void lockd_relations_gone(struct lockd_connection *connection);
/* The program has sent a key. */
void lockd_relations_kin(struct lockd_connection *connection, const struct gs_wire_kin *kin);
/* The program has told that it sees a device. */
void lockd_relations_sees(struct lockd_connection *connection, const struct lockd_seen *seen);
/* A move of the program is over, for whatever reason it began, or takes long (NOT_IT, 0, 0): then
 * balance chooses others meanwhile. ns, bytes: as in struct lockd_move_calls. */
void lockd_relations_moved(struct lockd_connection *connection, enum lockd_move_end end,
                           uint64_t ns, uint64_t bytes);
/* Looks for hangs, and for programs that would wait less on another device. Returns when to look
 * again. */
uint64_t lockd_relations_tend(struct lockd_server *server, uint64_t now);
/* Adds the program's figures for the status. */
void lockd_relations_describe(const struct lockd_connection *connection,
                              struct gs_wire_client *client);

#define LOCKD_REMARKS 16

/* A remark, the newest of its kind and process. */
struct lockd_remark {
    struct lockd_stamp stamp; /* its owner: the number of its lockd_user */
    uint64_t owner;           /* id of the connection that it came from */
    int32_t pid;
    uint32_t kind, count;
    char name[32], text[192];
};

struct lockd_remarks {
    struct lockd_remark slot[LOCKD_REMARKS];
};

void lockd_remarks_add(struct lockd_remarks *remarks, const struct lockd_connection *from,
                       const struct gs_wire_note *note, uint64_t now);
/* Adds a remark of the daemon about a program. */
void lockd_remarks_say(const struct lockd_connection *about, const char *text);
/* Remarks on programs, and on groups that take turns separately, of which the scheduler tells. */
void lockd_remarks_programs(struct lockd_server *server);

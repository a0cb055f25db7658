/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin.h: the device plugin: what its files share, and its life.
 */
#pragma once

#include "cluster/grpc_peer.h"
#include "cluster/allocate.h"
#include "lockd/base/list.h"

#define PLUGIN_ENDPOINT "gpushare.sock" /* in kubelet's folder */
#define PLUGIN_KUBELET  "kubelet.sock"
#define PLUGIN_PEERS    8 /* connections at the same time; kubelet has one or two */

struct plugin_settings {
    const char *folder;        /* kubelet's: its socket and the plugins' */
    const char *resource;      /* the name that pods ask for */
    const char *library;       /* of the driver's management; NULL: the loader's */
    const char *pod_resources; /* kubelet's other socket */
    uint64_t answer;           /* enum allocate_answer */
    uint64_t period_s;         /* between two looks at the GPUs */
    uint64_t watch_within;     /* ns in which kubelet must watch; else registers again */
    struct gs_places lockd;    /* the daemon's sockets */
};

/* Telling kubelet that this plugin is there. */
struct registration {
    struct grpc_peer peer;
    bool done;
    bool lost;                /* the watch has ended while kubelet was being told */
    uint64_t again_at, pause; /* ns; UINT64_MAX: when kubelet's socket appears */
    uint64_t told_at;         /* ns: when kubelet took it */
    bool missing;             /* it was said that kubelet is not there */
};

/* Asking kubelet whether somebody else gives out the same GPUs. */
struct rival {
    struct grpc_peer peer;
    uint64_t ask_at; /* ns; UINT64_MAX: not */
    bool told[CARDS_MOST];
};

struct plugin {
    struct plugin_settings set;
    struct cards cards;
    int signals, folder, news; /* descriptors: signals, inotify, health */
    int owned;                 /* kubelet's folder, locked for this plugin */
    int listener;
    uint64_t listener_inode;
    uint64_t listen_at; /* ns: not made again before; 0: never tried */
    int listen_said;    /* the error that was logged; 0: it worked */
    struct grpc_peer peers[PLUGIN_PEERS];
    uint64_t accepted[PLUGIN_PEERS]; /* the number of each: the oldest has the lowest */
    uint64_t accepts;                /* so many until now */
    struct lockd_list watchers;      /* of ListAndWatch */
    struct registration registration;
    struct rival rival;
    uint64_t load_again_at; /* ns: until then the daemon, which hangs, is not asked */
    bool draining;
};

/* Serves until SIGTERM or SIGINT. cards: taken over. 0 or -errno. */
int plugin_run(const struct plugin_settings *set, struct cards *cards, struct gs_err *err);

/* SPDX-License-Identifier: Apache-2.0
 *
 * pods.h: the name of a Kubernetes pod on this machine, from its UID.
 */
#ifndef GS_CLUSTER_PODS_PODS_H
#define GS_CLUSTER_PODS_PODS_H

#include <stdbool.h>

#define PODS_LOGS      "/var/log/pods" /* kubelet's folder */
#define PODS_NAME_SIZE 256             /* a name or a namespace has 253 characters at most */

struct pods_name {
    char name[PODS_NAME_SIZE];
    char space[PODS_NAME_SIZE]; /* the namespace */
};

/* Looks for the pod in kubelet's folder of logs (folder: NULL for PODS_LOGS), which has a folder
 * NAMESPACE_NAME_UID for each pod. uid: as lockd_identity_pod() writes it. False: there is none,
 * or this process may not read the folder. Any thread. */
bool pods_find(const char *folder, const char *uid, struct pods_name *name);

#endif

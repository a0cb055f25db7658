/* SPDX-License-Identifier: Apache-2.0
 *
 * pods.h: the names of a Kubernetes pod and of its containers on this machine, from the numbers
 * in a control group.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define PODS_LOGS      "/var/log/pods"       /* kubelet's folder */
#define PODS_LINKS     "/var/log/containers" /* kubelet's links to the logs of containers */
#define PODS_NAME_SIZE 256 /* a name or a namespace has 253 characters at most */

struct pods_name {
    char name[PODS_NAME_SIZE];
    char space[PODS_NAME_SIZE]; /* the namespace */
};

/* Looks for the pod in kubelet's folder of logs (folder: NULL for PODS_LOGS), which has a folder
 * NAMESPACE_NAME_UID for each pod. uid: as lockd_identity_pod() writes it. False: there is none,
 * or this process may not read the folder. Any thread. */
bool pods_find(const char *folder, const char *uid, struct pods_name *name);

/* Looks for the container in kubelet's folder of links (folder: NULL for PODS_LINKS), which has
 * a link POD_NAMESPACE_CONTAINER-ID.log for each container. name: size bytes, PODS_NAME_SIZE
 * are enough. False as above, and then name is "". Any thread. */
bool pods_container_find(const char *folder, const char *id, char *name, size_t size);

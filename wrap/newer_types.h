/* SPDX-License-Identifier: Apache-2.0
 *
 * newer_types.h: the types of driver_api.def's functions: those of the toolkit's headers and,
 * where these are older than the table, of the functions that they lack. So gpushare is built
 * with the headers of CUDA 13.0 and newer. The declarations are those of cuda.h and
 * cudaTypedefs.h of CUDA 13.5; structures that no wrapper looks into have no members here.
 * scripts/check_table.py compares the types with newer headers.
 */
#pragma once

#include <cudaTypedefs.h>
#include <cudaProfilerTypedefs.h>

/* The newest CUDA version that the table knows (1000*major + 10*minor). */
#define GS_TABLE_VERSION 13050

#define GS_NEWER(base, since, variant, ...)                                                    \
    typedef CUresult(CUDAAPI *PFN_##base##_v##since##variant)(__VA_ARGS__);
#define GS_NEWER_BOTH(base, since, ...)                                                        \
    GS_NEWER(base, since, , __VA_ARGS__) GS_NEWER(base, since, _ptsz, __VA_ARGS__)

#if CUDA_VERSION < 13010
typedef struct CU_DEV_SM_RESOURCE_GROUP_PARAMS_st CU_DEV_SM_RESOURCE_GROUP_PARAMS;

GS_NEWER(cuDevSmResourceSplit, 13010, , CUdevResource *, unsigned int, const CUdevResource *,
         CUdevResource *, unsigned int, CU_DEV_SM_RESOURCE_GROUP_PARAMS *)
GS_NEWER(cuGraphExecGetId, 13010, , CUgraphExec, unsigned int *)
GS_NEWER(cuGraphGetId, 13010, , CUgraph, unsigned int *)
GS_NEWER(cuGraphNodeGetContainingGraph, 13010, , CUgraphNode, CUgraph *)
GS_NEWER(cuGraphNodeGetLocalId, 13010, , CUgraphNode, unsigned int *)
GS_NEWER(cuGraphNodeGetToolsId, 13010, , CUgraphNode, unsigned long long *)
GS_NEWER(cuMulticastBindAddr, 13010, , CUmemGenericAllocationHandle, CUdevice, size_t,
         CUdeviceptr_v2, size_t, unsigned long long)
GS_NEWER(cuMulticastBindMem, 13010, , CUmemGenericAllocationHandle, CUdevice, size_t,
         CUmemGenericAllocationHandle, size_t, size_t, unsigned long long)
GS_NEWER_BOTH(cuStreamGetDevResource, 13010, CUstream, CUdevResource *, CUdevResourceType)
#endif

#if CUDA_VERSION < 13020
typedef struct CUcoredumpCallbackEntry_st *CUcoredumpCallbackHandle;
typedef void(CUDA_CB *CUcoredumpStatusCallback)(void *userData, int pid, CUdevice dev);

/* those of 13.1 itself lack these */
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
GS_NEWER_BOTH(cuLaunchHostFunc, 13010, CUstream, CUhostFn, void *, unsigned int)
GS_NEWER_BOTH(cuStreamBeginCaptureToCig, 13010, CUstream, CUstreamCigCaptureParams *)
GS_NEWER_BOTH(cuStreamEndCaptureToCig, 13010, CUstream)

GS_NEWER(cuCoredumpDeregisterCompleteCallback, 13020, , CUcoredumpCallbackHandle)
GS_NEWER(cuCoredumpDeregisterStartCallback, 13020, , CUcoredumpCallbackHandle)
GS_NEWER(cuCoredumpRegisterCompleteCallback, 13020, , CUcoredumpStatusCallback, void *,
         CUcoredumpCallbackHandle *)
GS_NEWER(cuCoredumpRegisterStartCallback, 13020, , CUcoredumpStatusCallback, void *,
         CUcoredumpCallbackHandle *)
GS_NEWER(cuFuncGetParamCount, 13020, , CUfunction, size_t *)
GS_NEWER(cuGraphNodeGetParams, 13020, , CUgraphNode, CUgraphNodeParams *)
GS_NEWER(cuKernelGetParamCount, 13020, , CUkernel, size_t *)
GS_NEWER_BOTH(cuMemcpy3DWithAttributesAsync, 13020, CUDA_MEMCPY3D_BATCH_OP_v1 *,
              unsigned long long, CUstream)
GS_NEWER_BOTH(cuMemcpyWithAttributesAsync, 13020, CUdeviceptr_v2, CUdeviceptr_v2, size_t,
              CUmemcpyAttributes_v1 *, CUstream)
#endif

#if CUDA_VERSION < 13030
typedef cuuint32_t CUlogicalEndpointId;
typedef enum CUlogicalEndpointIpcHandleType_enum {
    CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_NONE,
    CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_FABRIC
} CUlogicalEndpointIpcHandleType;
typedef struct CUlogicalEndpointProp_struct CUlogicalEndpointProp;
typedef enum CUgraphRecaptureStatus_enum {
    CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE = 0,
    CU_GRAPH_RECAPTURE_INELIGIBLE_FOR_UPDATE = 1,
    CU_GRAPH_RECAPTURE_ERROR = 2
} CUgraphRecaptureStatus;
typedef CUresult(CUDA_CB *CUgraphRecaptureCallback)(void *data, CUgraphNode node,
                                                    const CUgraphNodeParams *originalParams,
                                                    const CUgraphNodeParams *recaptureParams,
                                                    CUgraphRecaptureStatus status);

GS_NEWER(cuLogicalEndpointAddDevice, 13030, , CUlogicalEndpointId, CUdevice)
GS_NEWER(cuLogicalEndpointBindAddr, 13030, , CUlogicalEndpointId, CUdevice, cuuint64_t, void *,
         cuuint64_t, unsigned long long)
GS_NEWER(cuLogicalEndpointBindMem, 13030, , CUlogicalEndpointId, CUdevice, cuuint64_t,
         CUmemGenericAllocationHandle, cuuint64_t, cuuint64_t, unsigned long long)
GS_NEWER(cuLogicalEndpointCreate, 13030, , CUlogicalEndpointId, const CUlogicalEndpointProp *)
GS_NEWER(cuLogicalEndpointDestroy, 13030, , CUlogicalEndpointId)
GS_NEWER(cuLogicalEndpointExport, 13030, , void *, const CUlogicalEndpointId,
         CUlogicalEndpointIpcHandleType)
GS_NEWER(cuLogicalEndpointGetLimits, 13030, , cuuint64_t *, cuuint64_t *,
         const CUlogicalEndpointProp *)
GS_NEWER(cuLogicalEndpointIdRelease, 13030, , CUlogicalEndpointId, cuuint32_t)
GS_NEWER(cuLogicalEndpointIdReserve, 13030, , CUlogicalEndpointId *, cuuint32_t)
GS_NEWER(cuLogicalEndpointImport, 13030, , CUlogicalEndpointId, const void *,
         CUlogicalEndpointIpcHandleType)
GS_NEWER(cuLogicalEndpointQuery, 13030, , CUlogicalEndpointId, cuuint32_t, int *)
GS_NEWER(cuLogicalEndpointUnbind, 13030, , CUlogicalEndpointId, CUdevice, cuuint64_t,
         cuuint64_t)
GS_NEWER_BOTH(cuStreamBeginRecaptureToGraph, 13030, CUstream, CUstreamCaptureMode, CUgraph,
              CUgraphRecaptureCallback, void *)
#endif

#if CUDA_VERSION < 13040
typedef struct CUIcheckpointOperation_st *CUcheckpointOperationHandle;
typedef struct CUcliqueInfo_st CUcliqueInfo;

GS_NEWER(cuCheckpointOperationComplete, 13040, , CUcheckpointOperationHandle)
GS_NEWER(cuDeviceGetCliqueCount, 13040, , size_t *, CUdevice)
GS_NEWER(cuDeviceGetCliqueInfo, 13040, , CUcliqueInfo *, size_t *, CUdevice)
GS_NEWER(cuDeviceGetFabricClusterUuid, 13040, , CUuuid *, CUdevice)
GS_NEWER(cuGraphAddNode, 13040, , CUgraphNode *, CUgraph, const CUgraphNode *,
         const CUgraphEdgeData *, size_t, CUgraphNodeParams *)
GS_NEWER(cuGraphNodeSetParams, 13040, , CUgraphNode, CUgraphNodeParams *)
GS_NEWER(cuMemGetLocationInfo, 13040, , CUdeviceptr_v2, size_t, size_t, size_t,
         CUmemLocation_v1 *)
#endif

#if CUDA_VERSION < 13050
typedef enum CUtensorMapAllocClass_enum {
    CU_TENSOR_MAP_ALLOC_CLASS_AUTO = 0,
    CU_TENSOR_MAP_ALLOC_CLASS_SMALL = 1,
    CU_TENSOR_MAP_ALLOC_CLASS_LARGE = 2
} CUtensorMapAllocClass;
typedef enum CUfabricCpyOperandType_enum {
    CU_FABRIC_COPY_OPERAND_TYPE_POINTER = 0x1,
    CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT = 0x2,
    CU_FABRIC_COPY_OPERAND_TYPE_MAX = 0x7FFFFFFF
} CUfabricCpyOperandType;
typedef struct CUfabricCpyOperand_st {
    CUfabricCpyOperandType type;
    union {
        struct {
            CUdeviceptr ptr;
            CUmemLocation locHint;
        } ptr;
        struct {
            CUlogicalEndpointId id;
            cuuint64_t offset;
        } le;
    } op;
} CUfabricCpyOperand;
typedef struct CUDA_FABRIC_COPY_BATCH_OP_st {
    CUfabricCpyOperand src, dst;
    size_t size;
    unsigned int flags;
} CUDA_FABRIC_COPY_BATCH_OP_v1;

GS_NEWER_BOTH(cuFabricCpyBatchAsync, 13050, size_t, CUDA_FABRIC_COPY_BATCH_OP_v1 *,
              unsigned long long, CUstream)
GS_NEWER(cuTensorMapSetAllocationClass, 13050, , CUtensorMap *, CUtensorMapAllocClass,
         CUtensorMapAllocClass *)
#endif

#undef GS_NEWER
#undef GS_NEWER_BOTH

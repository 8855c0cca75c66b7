"""Windows of PyTorch processes that run with `KINETO_USE_DAEMON=1`.

libkineto in such a process asks a daemon on this machine for a configuration every 5 s. The daemon
is whoever binds the socket `dynolog`; a configuration opens one window of the profiler, which the
process writes to a file. Source: pytorch/kineto `IpcFabricConfigClient.cpp`, `Config.cpp`, and
facebookincubator/dynolog `IPCMonitor.cpp`.
"""

"""Kernels that begin with what every chapter imports: forked from one process, which has imported it already.

A kernel of its own would import PyTorch and Matplotlib again, two to three seconds for each page.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

FORK = multiprocessing.get_context("forkserver")
# The second, since a forked process imports the program again that asks for it.
FORK.set_forkserver_preload(["tools.kernel_imports", "tools.execution"])


class Forked:
    """A forked process, with those methods of ``subprocess.Popen`` that a provisioner calls."""

    stdin = stdout = stderr = None  # the kernel's output comes by its messages

    def __init__(self, *arguments: Any) -> None:
        self.process = FORK.Process(target=_serve, args=arguments)
        self.process.start()
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.pid is not None and self.process.is_alive():
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()


class ForkedProvisioner(LocalProvisioner):
    """Starts a kernel by forking where the usual one runs a command."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        arguments = cmd[cmd.index("-f") :]  # of "python -m ipykernel_launcher -f FILE"
        forked: Any = Forked(arguments, kwargs["cwd"], dict(kwargs["env"]))
        self.process, self.pid = forked, forked.pid
        return self.connection_info


class ForkedManager(AsyncKernelManager):
    """A kernel manager with that provisioner."""

    async def _async_pre_start_kernel(self, **kwargs: Any) -> Any:
        if self.provisioner is None:
            self.provisioner = ForkedProvisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)
        return await super()._async_pre_start_kernel(**kwargs)


def _serve(arguments: list[str], folder: str, environment: Mapping[str, str]) -> None:
    """Be a kernel until it is shut down, in the forked process."""
    from ipykernel.kernelapp import launch_new_instance

    os.chdir(folder)
    os.environ.update(environment)
    launch_new_instance(argv=arguments)

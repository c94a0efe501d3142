"""The Python side of the native core. What is wrong with its installation is said at the import."""

from paredown.kernels.native_module import check_native_module

check_native_module()

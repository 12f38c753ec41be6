"""The pinned versions of everything that the development tooling builds or installs."""

KUBERNETES = "1.34.4"
COREDNS = "1.14.7"
HELM = "3.22.0"
LOCAL_PATH = "0.0.30"
NODE_HELPER = "1"
DEBIAN_SUITE = "trixie"
UV = "0.13.9"

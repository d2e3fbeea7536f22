"""Multi-head attention you can run, read and reshape.

`__init__.pyi` lists the public names. Each is imported on first use, so that `import headwise`
loads neither torch nor any other large package.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

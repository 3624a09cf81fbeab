"""Files for build systems. In: which library there is. Out: texts of CMake and pkg-config."""

from __future__ import annotations

LIBRARIES = {"shared": "libmodel.so", "static": "libmodel.a", "object": "model.o"}
"""Format -> what a program is linked with."""


_CMAKE_OF_C = """\
# cmake -S . -B build && cmake --build build; or add_subdirectory() and link with `model`.
cmake_minimum_required(VERSION 3.10)
project(model C)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_STANDARD 99)
add_library(model STATIC model.c)
target_include_directories(model PUBLIC "${CMAKE_CURRENT_LIST_DIR}")
target_link_libraries(model m)
add_executable(main main.c)
target_link_libraries(main model)
"""


def cmake_text(format_: str, links: tuple[str, ...] = ()) -> str:
    """Builds `main`, and offers the library as the target `model`. `links`: of the system."""
    if format_ == "c":
        return _CMAKE_OF_C
    place = f'"${{CMAKE_CURRENT_LIST_DIR}}/{LIBRARIES[format_]}"'
    needs = " ".join(links)
    return f"""\
# cmake -S . -B build && cmake --build build; or add_subdirectory() and link with `model`.
cmake_minimum_required(VERSION 3.10)
project(model C)
add_library(model INTERFACE)
target_include_directories(model INTERFACE "${{CMAKE_CURRENT_LIST_DIR}}")
target_link_libraries(model INTERFACE {place}{" " + needs if needs else ""})
add_executable(main main.c)
target_link_libraries(main model)
"""


def pkg_config_text(format_: str, version: str, links: tuple[str, ...]) -> str:
    """`cc main.c $(pkg-config --cflags --libs model)`, this folder in PKG_CONFIG_PATH."""
    system = " ".join(f"-l{name}" for name in links)
    library = (
        "-L${pcfiledir} -Wl,-rpath,${pcfiledir} -lmodel"
        if format_ == "shared"
        else f"${{pcfiledir}}/{LIBRARIES[format_]}"
    )
    return f"""\
Name: model
Description: a compiled model
Version: {version}
Cflags: -I${{pcfiledir}}
Libs: {library} {system}
"""

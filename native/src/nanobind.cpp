// nanobind itself, compiled into the extension.
#include <nb_combined.cpp>

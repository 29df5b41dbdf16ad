/* spec.cuh - stands in for the generated text of that name: here the SPEC constants are on the compiler's command line, written by
 * configure.py. Empty; the kernels include it first. */

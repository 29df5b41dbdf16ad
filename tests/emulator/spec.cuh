/* spec.cuh - stands in for the generated text of that name: here the SPEC constants come with the compiler's command line,
 * which configure.py writes. Empty; the kernels include it first. */

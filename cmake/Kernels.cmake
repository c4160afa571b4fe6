# WEIR_KERNELS: the sources of src/kern for this processor, each instruction set compiled for itself and no other file for
# it. Chosen at run time.
get_filename_component(kern ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
string(APPEND kern /src/kern)
file(GLOB WEIR_KERNELS CONFIGURE_DEPENDS ${kern}/*.c)

function(kernels_for pattern options)
  file(GLOB files CONFIGURE_DEPENDS ${kern}/${pattern})
  set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${options}")
  set(WEIR_KERNELS ${WEIR_KERNELS} ${files} PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx512 "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma")
  kernels_for(x86/*_avx2.c "-mavx2;-mfma;-mf16c")
  kernels_for(x86/*_avxvnni.c "-mavx2;-mfma;-mf16c;-mavxvnni")
  kernels_for(x86/*_avx512.c "${avx512}")
  kernels_for(x86/*_avx512vnni.c "${avx512};-mavx512vnni")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  kernels_for(arm/*_neon.c "")
  kernels_for(arm/*_dotprod.c "-march=armv8.2-a+dotprod")
endif()

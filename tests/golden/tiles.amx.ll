declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
@autotune_tile_shapes.tiles.0 = internal constant [64 x i8] c"\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\40\00\40\00\40\00\40\00\40\00\40\00\40\00\40\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\10\10\10\10\10\10\10\10\00\00\00\00\00\00\00\00", align 64
@autotune_tile_shapes.tiles.1 = internal constant [64 x i8] c"\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\40\00\40\00\40\00\40\00\40\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\08\08\08\10\10\00\00\00\00\00\00\00\00\00\00\00", align 64
declare void @llvm.x86.tilerelease()
define void @tiles(ptr %p0, ptr noalias readonly %p1, ptr %p2, ptr %workspace, i64 %thread, i64 %threads, i64 %epoch) nounwind "denormal-fp-math"="preserve-sign,preserve-sign" {
entry:
  %v1 = getelementptr i8, ptr %workspace, i64 0
  %v28 = getelementptr i8, ptr %workspace, i64 5120
  %v77 = getelementptr i8, ptr %workspace, i64 9216
  call void @llvm.x86.ldtilecfg(ptr @autotune_tile_shapes.tiles.0)
  br label %L2
L2:
  %i4 = phi i64 [ 0, %entry ], [ %n5, %L7 ]
  %v10 = mul i64 %i4, 64
  %v11 = getelementptr float, ptr %p0, i64 %v10
  %v17 = getelementptr i16, ptr %v1, i64 %v10
  br label %L6
L6:
  %i8 = phi i64 [ 0, %L2 ], [ %n9, %L6 ]
  %v12 = mul i64 %i8, 16
  %v13 = getelementptr float, ptr %v11, i64 %v12
  %v18 = getelementptr i16, ptr %v17, i64 %v12
  %v14 = load <16 x float>, ptr %v13, align 4
  %v15 = fptrunc <16 x float> %v14 to <16 x bfloat>
  %v16 = bitcast <16 x bfloat> %v15 to <16 x i16>
  store <16 x i16> %v16, ptr %v18, align 2
  %n9 = add nuw nsw i64 %i8, 1
  %v19 = icmp ult i64 %n9, 4
  br i1 %v19, label %L6, label %L7
L7:
  %n5 = add nuw nsw i64 %i4, 1
  %v20 = icmp ult i64 %n5, 40
  br i1 %v20, label %L2, label %L3
L3:
  br label %L21
L21:
  %i23 = phi i64 [ 0, %L3 ], [ %n24, %L76 ]
  %v25 = icmp ult i64 %i23, 1
  %v33 = mul i64 %i23, 2048
  %v34 = getelementptr i16, ptr %v1, i64 %v33
  %v52 = mul i64 %i23, 1024
  %v53 = getelementptr float, ptr %p2, i64 %v52
  %v73 = add i64 %i23, -1
  %v74 = icmp ult i64 %v73, 1
  br i1 %v25, label %L26, label %L27
L26:
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tilezero(i8 1)
  call void @llvm.x86.tilezero(i8 2)
  call void @llvm.x86.tilezero(i8 3)
  br label %L29
L29:
  %i31 = phi i64 [ 0, %L26 ], [ %n32, %L29 ]
  %v35 = mul i64 %i31, 32
  %v36 = getelementptr i16, ptr %v34, i64 %v35
  %v37 = mul i64 %i31, 1024
  %v38 = getelementptr i16, ptr %p1, i64 %v37
  call void @llvm.x86.tileloadd64(i8 4, ptr %v36, i64 128)
  call void @llvm.x86.tileloadd64(i8 6, ptr %v38, i64 128)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 4, i8 6)
  %v39 = getelementptr i16, ptr %v38, i64 32
  call void @llvm.x86.tileloadd64(i8 7, ptr %v39, i64 128)
  call void @llvm.x86.tdpbf16ps(i8 1, i8 4, i8 7)
  %v40 = getelementptr i16, ptr %v36, i64 1024
  call void @llvm.x86.tileloadd64(i8 5, ptr %v40, i64 128)
  call void @llvm.x86.tdpbf16ps(i8 2, i8 5, i8 6)
  call void @llvm.x86.tdpbf16ps(i8 3, i8 5, i8 7)
  %n32 = add nuw nsw i64 %i31, 1
  %v41 = icmp ult i64 %n32, 2
  br i1 %v41, label %L29, label %L30
L30:
  call void @llvm.x86.tilestored64(i8 0, ptr %v28, i64 128)
  %v42 = getelementptr float, ptr %v28, i64 16
  call void @llvm.x86.tilestored64(i8 1, ptr %v42, i64 128)
  %v43 = getelementptr float, ptr %v28, i64 512
  call void @llvm.x86.tilestored64(i8 2, ptr %v43, i64 128)
  %v44 = getelementptr float, ptr %v28, i64 528
  call void @llvm.x86.tilestored64(i8 3, ptr %v44, i64 128)
  br label %L45
L45:
  %i47 = phi i64 [ 0, %L30 ], [ %n48, %L45 ]
  %v49 = mul i64 %i47, 32
  %v50 = getelementptr float, ptr %v28, i64 %v49
  %v54 = getelementptr float, ptr %v53, i64 %v49
  %v51 = load <16 x float>, ptr %v50, align 4
  store <16 x float> %v51, ptr %v54, align 4
  %v55 = getelementptr float, ptr %v50, i64 16
  %v56 = load <16 x float>, ptr %v55, align 4
  %v57 = getelementptr float, ptr %v54, i64 16
  store <16 x float> %v56, ptr %v57, align 4
  %n48 = add nuw nsw i64 %i47, 1
  %v58 = icmp ult i64 %n48, 16
  br i1 %v58, label %L45, label %L46
L46:
  br label %L59
L59:
  %i61 = phi i64 [ 0, %L46 ], [ %n62, %L59 ]
  %v63 = mul i64 %i61, 32
  %v64 = getelementptr float, ptr %v28, i64 %v63
  %v67 = getelementptr float, ptr %v53, i64 %v63
  %v65 = getelementptr float, ptr %v64, i64 512
  %v66 = load <16 x float>, ptr %v65, align 4
  %v68 = getelementptr float, ptr %v67, i64 512
  store <16 x float> %v66, ptr %v68, align 4
  %v69 = getelementptr float, ptr %v64, i64 528
  %v70 = load <16 x float>, ptr %v69, align 4
  %v71 = getelementptr float, ptr %v67, i64 528
  store <16 x float> %v70, ptr %v71, align 4
  %n62 = add nuw nsw i64 %i61, 1
  %v72 = icmp ult i64 %n62, 16
  br i1 %v72, label %L59, label %L60
L60:
  br label %L27
L27:
  br i1 %v74, label %L75, label %L76
L75:
  call void @llvm.x86.ldtilecfg(ptr @autotune_tile_shapes.tiles.1)
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tilezero(i8 1)
  br label %L78
L78:
  %i80 = phi i64 [ 0, %L75 ], [ %n81, %L78 ]
  %v82 = mul i64 %i80, 32
  %v83 = getelementptr i16, ptr %v1, i64 %v82
  %v85 = mul i64 %i80, 1024
  %v86 = getelementptr i16, ptr %p1, i64 %v85
  %v84 = getelementptr i16, ptr %v83, i64 2048
  call void @llvm.x86.tileloadd64(i8 2, ptr %v84, i64 128)
  call void @llvm.x86.tileloadd64(i8 3, ptr %v86, i64 128)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 2, i8 3)
  %v87 = getelementptr i16, ptr %v86, i64 32
  call void @llvm.x86.tileloadd64(i8 4, ptr %v87, i64 128)
  call void @llvm.x86.tdpbf16ps(i8 1, i8 2, i8 4)
  %n81 = add nuw nsw i64 %i80, 1
  %v88 = icmp ult i64 %n81, 2
  br i1 %v88, label %L78, label %L79
L79:
  call void @llvm.x86.tilestored64(i8 0, ptr %v77, i64 128)
  %v89 = getelementptr float, ptr %v77, i64 16
  call void @llvm.x86.tilestored64(i8 1, ptr %v89, i64 128)
  br label %L90
L90:
  %i92 = phi i64 [ 0, %L79 ], [ %n93, %L104 ]
  %v94 = add i64 %i92, 32
  %v95 = icmp ult i64 %v94, 40
  %v98 = mul i64 %i92, 32
  %v99 = getelementptr float, ptr %v77, i64 %v98
  %v101 = getelementptr float, ptr %p2, i64 %v98
  br i1 %v95, label %L96, label %L97
L96:
  %v100 = load <16 x float>, ptr %v99, align 4
  %v102 = getelementptr float, ptr %v101, i64 1024
  store <16 x float> %v100, ptr %v102, align 4
  br label %L97
L97:
  br i1 %v95, label %L103, label %L104
L103:
  %v105 = getelementptr float, ptr %v99, i64 16
  %v106 = load <16 x float>, ptr %v105, align 4
  %v107 = getelementptr float, ptr %v101, i64 1040
  store <16 x float> %v106, ptr %v107, align 4
  br label %L104
L104:
  %n93 = add nuw nsw i64 %i92, 1
  %v108 = icmp ult i64 %n93, 16
  br i1 %v108, label %L90, label %L91
L91:
  br label %L109
L109:
  %i111 = phi i64 [ 0, %L91 ], [ %n112, %L124 ]
  %v113 = add i64 %i111, 48
  %v114 = icmp ult i64 %v113, 40
  %v117 = mul i64 %i111, 32
  %v118 = getelementptr float, ptr %v77, i64 %v117
  %v121 = getelementptr float, ptr %p2, i64 %v117
  br i1 %v114, label %L115, label %L116
L115:
  %v119 = getelementptr float, ptr %v118, i64 512
  %v120 = load <16 x float>, ptr %v119, align 4
  %v122 = getelementptr float, ptr %v121, i64 1536
  store <16 x float> %v120, ptr %v122, align 4
  br label %L116
L116:
  br i1 %v114, label %L123, label %L124
L123:
  %v125 = getelementptr float, ptr %v118, i64 528
  %v126 = load <16 x float>, ptr %v125, align 4
  %v127 = getelementptr float, ptr %v121, i64 1552
  store <16 x float> %v126, ptr %v127, align 4
  br label %L124
L124:
  %n112 = add nuw nsw i64 %i111, 1
  %v128 = icmp ult i64 %n112, 16
  br i1 %v128, label %L109, label %L110
L110:
  call void @llvm.x86.ldtilecfg(ptr @autotune_tile_shapes.tiles.0)
  br label %L76
L76:
  %n24 = add nuw nsw i64 %i23, 1
  %v129 = icmp ult i64 %n24, 2
  br i1 %v129, label %L21, label %L22
L22:
  call void @llvm.x86.tilerelease()
  ret void
}
define void @tiles_run(ptr %args, i64 %repeats) alignstack(64) nounwind {
entry:
  %s0 = getelementptr ptr, ptr %args, i64 0
  %b0 = load ptr, ptr %s0
  %s1 = getelementptr ptr, ptr %args, i64 1
  %b1 = load ptr, ptr %s1
  %s2 = getelementptr ptr, ptr %args, i64 2
  %b2 = load ptr, ptr %s2
  %s3 = getelementptr ptr, ptr %args, i64 3
  %b3 = load ptr, ptr %s3
  %came0 = add i64 0, 0
  %caller_control = alloca i32
  %control = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %caller_control)
  store i32 40896, ptr %control
  call void @llvm.x86.sse.ldmxcsr(ptr %control)
  %thread = add i64 0, 0
  br label %work
work:
  %threads = add i64 0, 1
  br label %loop
loop:
  %i = phi i64 [ 0, %work ], [ %next, %loop ]
  %epoch = add i64 %came0, %i
  call void @tiles(ptr %b0, ptr %b1, ptr %b2, ptr %b3, i64 %thread, i64 %threads, i64 %epoch)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %repeats
  br i1 %more, label %loop, label %out
out:
  call void @llvm.x86.sse.ldmxcsr(ptr %caller_control)
  ret void
}

declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @matmul(ptr %p0, ptr noalias readonly %p1, ptr %p2, ptr %workspace, i64 %thread, i64 %threads, i64 %epoch) nounwind "denormal-fp-math"="preserve-sign,preserve-sign" {
entry:
  %cell9 = alloca <4 x float>, align 64
  %cell10 = alloca <4 x float>, align 64
  br label %L1
L1:
  %i3 = phi i64 [ 0, %entry ], [ %n4, %L6 ]
  %v15 = mul i64 %i3, 6
  %v16 = getelementptr float, ptr %p0, i64 %v15
  %v37 = mul i64 %i3, 16
  %v38 = getelementptr float, ptr %p2, i64 %v37
  br label %L5
L5:
  %i7 = phi i64 [ 0, %L1 ], [ %n8, %L12 ]
  %v19 = mul i64 %i7, 12
  %v20 = getelementptr float, ptr %p1, i64 %v19
  %v39 = mul i64 %i7, 4
  %v40 = getelementptr float, ptr %v38, i64 %v39
  store <4 x float> splat (float 0x0000000000000000), ptr %cell9
  store <4 x float> splat (float 0x0000000000000000), ptr %cell10
  br label %L11
L11:
  %i13 = phi i64 [ 0, %L5 ], [ %n14, %L11 ]
  %v17 = getelementptr float, ptr %v16, i64 %i13
  %v21 = mul i64 %i13, 4
  %v22 = getelementptr float, ptr %v20, i64 %v21
  %v18 = load float, ptr %v17, align 4
  %v23 = load <4 x float>, ptr %v22, align 4
  %v24 = load <4 x float>, ptr %cell9
  %v25 = insertelement <4 x float> poison, float %v18, i64 0
  %v26 = shufflevector <4 x float> %v25, <4 x float> poison, <4 x i32> zeroinitializer
  %v27 = call nsz contract <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v26, <4 x float> %v23, <4 x float> %v24)
  %v28 = getelementptr float, ptr %v17, i64 3
  %v29 = load float, ptr %v28, align 4
  %v30 = load <4 x float>, ptr %v22, align 4
  %v31 = load <4 x float>, ptr %cell10
  %v32 = insertelement <4 x float> poison, float %v29, i64 0
  %v33 = shufflevector <4 x float> %v32, <4 x float> poison, <4 x i32> zeroinitializer
  %v34 = call nsz contract <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v33, <4 x float> %v30, <4 x float> %v31)
  %n14 = add nuw nsw i64 %i13, 1
  %v35 = icmp ult i64 %n14, 3
  store <4 x float> %v27, ptr %cell9
  store <4 x float> %v34, ptr %cell10
  br i1 %v35, label %L11, label %L12
L12:
  %v36 = load <4 x float>, ptr %cell9
  store <4 x float> %v36, ptr %v40, align 4
  %v41 = load <4 x float>, ptr %cell10
  %v42 = getelementptr float, ptr %v40, i64 8
  store <4 x float> %v41, ptr %v42, align 4
  %n8 = add nuw nsw i64 %i7, 1
  %v43 = icmp ult i64 %n8, 2
  br i1 %v43, label %L5, label %L6
L6:
  %n4 = add nuw nsw i64 %i3, 1
  %v44 = icmp ult i64 %n4, 2
  br i1 %v44, label %L1, label %L2
L2:
  ret void
}
define void @matmul_run(ptr %args, i64 %repeats) nounwind {
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
  %caller_control = call i64 @llvm.aarch64.get.fpcr()
  call void @llvm.aarch64.set.fpcr(i64 16777216)
  %thread = add i64 0, 0
  br label %work
work:
  %threads = add i64 0, 1
  br label %loop
loop:
  %i = phi i64 [ 0, %work ], [ %next, %loop ]
  %epoch = add i64 %came0, %i
  call void @matmul(ptr %b0, ptr %b1, ptr %b2, ptr %b3, i64 %thread, i64 %threads, i64 %epoch)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %repeats
  br i1 %more, label %loop, label %out
out:
  call void @llvm.aarch64.set.fpcr(i64 %caller_control)
  ret void
}

declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)
define void @matmul(ptr %p0, ptr noalias readonly %p1, ptr %p2, ptr %workspace, i64 %thread, i64 %threads) nounwind {
entry:
  %cell12 = alloca <4 x float>, align 64
  %cell13 = alloca <4 x float>, align 64
  %v1 = icmp eq i64 %thread, 0
  br i1 %v1, label %L2, label %L3
L2:
  br label %L4
L4:
  %i6 = phi i64 [ 0, %L2 ], [ %n7, %L9 ]
  %v18 = mul i64 %i6, 6
  %v19 = getelementptr float, ptr %p0, i64 %v18
  %v40 = mul i64 %i6, 16
  %v41 = getelementptr float, ptr %p2, i64 %v40
  br label %L8
L8:
  %i10 = phi i64 [ 0, %L4 ], [ %n11, %L15 ]
  %v22 = mul i64 %i10, 12
  %v23 = getelementptr float, ptr %p1, i64 %v22
  %v42 = mul i64 %i10, 4
  %v43 = getelementptr float, ptr %v41, i64 %v42
  store <4 x float> splat (float 0x0000000000000000), ptr %cell12
  store <4 x float> splat (float 0x0000000000000000), ptr %cell13
  br label %L14
L14:
  %i16 = phi i64 [ 0, %L8 ], [ %n17, %L14 ]
  %v20 = getelementptr float, ptr %v19, i64 %i16
  %v24 = mul i64 %i16, 4
  %v25 = getelementptr float, ptr %v23, i64 %v24
  %v21 = load float, ptr %v20, align 4
  %v26 = load <4 x float>, ptr %v25, align 4
  %v27 = load <4 x float>, ptr %cell12
  %v28 = insertelement <4 x float> poison, float %v21, i64 0
  %v29 = shufflevector <4 x float> %v28, <4 x float> poison, <4 x i32> zeroinitializer
  %v30 = call nsz contract <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v29, <4 x float> %v26, <4 x float> %v27)
  store <4 x float> %v30, ptr %cell12
  %v31 = getelementptr float, ptr %v20, i64 3
  %v32 = load float, ptr %v31, align 4
  %v33 = load <4 x float>, ptr %v25, align 4
  %v34 = load <4 x float>, ptr %cell13
  %v35 = insertelement <4 x float> poison, float %v32, i64 0
  %v36 = shufflevector <4 x float> %v35, <4 x float> poison, <4 x i32> zeroinitializer
  %v37 = call nsz contract <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v36, <4 x float> %v33, <4 x float> %v34)
  store <4 x float> %v37, ptr %cell13
  %n17 = add nuw nsw i64 %i16, 1
  %v38 = icmp ult i64 %n17, 3
  br i1 %v38, label %L14, label %L15
L15:
  %v39 = load <4 x float>, ptr %cell12
  store <4 x float> %v39, ptr %v43, align 4
  %v44 = load <4 x float>, ptr %cell13
  %v45 = getelementptr float, ptr %v43, i64 8
  store <4 x float> %v44, ptr %v45, align 4
  %n11 = add nuw nsw i64 %i10, 1
  %v46 = icmp ult i64 %n11, 2
  br i1 %v46, label %L8, label %L9
L9:
  %n7 = add nuw nsw i64 %i6, 1
  %v47 = icmp ult i64 %n7, 2
  br i1 %v47, label %L4, label %L5
L5:
  br label %L3
L3:
  ret void
}
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @sched_yield()
declare void @llvm.x86.sse2.pause()
@autotune_barrier_arrived = internal global i64 0, align 64
@autotune_barrier_round = internal global i64 0, align 64
define internal void @autotune_barrier(i64 %threads) nounwind noinline {
entry:
  %round = load atomic i64, ptr @autotune_barrier_round acquire, align 8
  %before = atomicrmw add ptr @autotune_barrier_arrived, i64 1 acq_rel
  %arrived = add i64 %before, 1
  %last = icmp eq i64 %arrived, %threads
  br i1 %last, label %open, label %wait
open:
  store atomic i64 0, ptr @autotune_barrier_arrived monotonic, align 8
  %following = add i64 %round, 1
  store atomic i64 %following, ptr @autotune_barrier_round release, align 8
  ret void
wait:
  %spin = phi i64 [ 0, %entry ], [ %spun, %again ]
  %now = load atomic i64, ptr @autotune_barrier_round acquire, align 8
  %same = icmp eq i64 %now, %round
  br i1 %same, label %stay, label %done
stay:
  %short = icmp ult i64 %spin, 2000
  br i1 %short, label %pause, label %give
pause:
  call void @llvm.x86.sse2.pause()
  br label %again
give:
  %ignored = call i32 @sched_yield()
  br label %again
again:
  %spun = add i64 %spin, 1
  br label %wait
done:
  ret void
}
define internal void @matmul_run_thread(ptr %frame) nounwind {
entry:
  %f0 = getelementptr i64, ptr %frame, i64 0
  %args = load ptr, ptr %f0
  %f1 = getelementptr i64, ptr %frame, i64 1
  %repeats = load i64, ptr %f1
  %t32 = call i32 @omp_get_thread_num()
  %thread = zext i32 %t32 to i64
  %n32 = call i32 @omp_get_num_threads()
  %threads = zext i32 %n32 to i64
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %s0 = getelementptr ptr, ptr %args, i64 0
  %a0 = load ptr, ptr %s0
  %s1 = getelementptr ptr, ptr %args, i64 1
  %a1 = load ptr, ptr %s1
  %s2 = getelementptr ptr, ptr %args, i64 2
  %a2 = load ptr, ptr %s2
  %s3 = getelementptr ptr, ptr %args, i64 3
  %a3 = load ptr, ptr %s3
  call void @matmul(ptr %a0, ptr %a1, ptr %a2, ptr %a3, i64 %thread, i64 %threads)
  call void @autotune_barrier(i64 %threads)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %repeats
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @matmul_run(ptr %args, i64 %repeats) nounwind {
entry:
  %frame = alloca [4 x i64], align 16
  %f0 = getelementptr i64, ptr %frame, i64 0
  store ptr %args, ptr %f0
  %f1 = getelementptr i64, ptr %frame, i64 1
  store i64 %repeats, ptr %f1
  call void @GOMP_parallel(ptr @matmul_run_thread, ptr %frame, i32 2, i32 0)
  ret void
}

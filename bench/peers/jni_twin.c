/* What BindingsBench and EnqueueLoop compare with: ncclGetVersion through JNI as one would write it by hand, and a
 * loop of C that enqueues, in the process of the JVM. */
#include <dlfcn.h>
#include <jni.h>
#include <stdint.h>

static int (*get_version)(int *);
static int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);

JNIEXPORT jboolean JNICALL Java_io_jccl_bench_jmh_JniTwin_bind(JNIEnv *env, jclass cls, jstring path)
{
    (void)cls;
    const char *file = (*env)->GetStringUTFChars(env, path, NULL);
    if (file == NULL) {
        return JNI_FALSE;
    }
    void *library = dlopen(file, RTLD_LAZY);
    (*env)->ReleaseStringUTFChars(env, path, file);
    if (library != NULL) {
        get_version = (int (*)(int *))dlsym(library, "ncclGetVersion");
        all_reduce = (int (*)(const void *, void *, size_t, int, int, void *, void *))dlsym(library, "ncclAllReduce");
    }
    return get_version != NULL && all_reduce != NULL;
}

JNIEXPORT jint JNICALL Java_io_jccl_bench_jmh_JniTwin_ncclGetVersion(JNIEnv *env, jclass cls, jlong out)
{
    (void)env;
    (void)cls;
    return get_version((int *)(intptr_t)out);
}

JNIEXPORT jint JNICALL Java_io_jccl_bench_jmh_JniTwin_enqueue(
    JNIEnv *env, jclass cls, jlong send, jlong recv, jlong count, jint type, jint op, jlong comm, jlong stream, jint calls)
{
    (void)env;
    (void)cls;
    int result = 0;
    for (int i = 0; i < calls && result == 0; i++) {
        result = all_reduce((void *)(intptr_t)send, (void *)(intptr_t)recv, (size_t)count, type, op,
                            (void *)(intptr_t)comm, (void *)(intptr_t)stream);
    }
    return result;
}

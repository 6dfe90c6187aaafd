from diffprivlib.models import LogisticRegression
from task import records

X, y, X_test, y_test, hospital = records()
model = LogisticRegression(epsilon=1.0, data_norm=2.001)
model.fit(X, y)
accuracy = model.score(X_test, y_test)
print(
    f"accuracy {accuracy:.3f}, ε = 1, δ = 0; one owner of all records"
)
